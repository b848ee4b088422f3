from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend
from tests.service.observe import wait_until
from tests.service.pushes import open_fake

from cerberank_service.http.plain_routes import ModelEntry, ModelList
from cerberank_service.settings import Settings
from cerberank_service.versions.describe import describe
from cerberank_service.versions.state import Snapshot


def reason_of(client: TestClient) -> str:
    """The reason that the only version is not served."""
    (entry,) = client.get("/v1/models").json()["models"]
    return str(entry["reason"])


def test_a_checkpoint_that_cannot_be_read_is_named_without_its_folders(open_app: Serve, tmp_path: Path) -> None:
    """Also one in a folder whose name has a blank."""
    client = open_app(open_fake, checkpoint=tmp_path / "my models" / "current")
    wait_until(lambda: client.get("/v1/models").json()["models"][0]["reason"])
    assert reason_of(client).startswith("current has no manifest.json")


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (
            "[Errno 2] No such file or directory: '/srv/models/7/config.json'",
            "[Errno 2] No such file or directory: 'config.json'",
        ),
        (
            "changed: /tmp/cerberank-x1/a/2/golden.jsonl does not have the SHA-256",
            "changed: golden.jsonl does not have the SHA-256",
        ),
        ("cannot open file:///home/me/model.onnx", "cannot open model.onnx"),
        ("12 of 7/8 tokens; see https://example.org/a/b", "12 of 7/8 tokens; see https://example.org/a/b"),
    ],
)
def test_absolute_paths_lose_their_folders(reason: str, shown: str) -> None:
    """Fractions and addresses stay as they are."""
    assert describe(Snapshot(reason=reason), Settings()) == [{"state": "loading", "reason": shown}]


def test_the_list_has_openai_s_shape_beside_ours(serve: Serve) -> None:
    """Every name that a request may give, aliases too, as OpenAI's clients read them; one of them alone as well."""
    client = serve(FakeBackend(), aliases="rerank-v3.5,org/reranker")
    listed = client.get("/v1/models").json()
    ModelList.model_validate(listed)
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["fake-ranker", "org/reranker", "rerank-v3.5"]
    made = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp())
    for model in listed["data"]:
        assert {**model, "id": ""} == {"id": "", "object": "model", "created": made, "owned_by": "cerberank"}
        assert client.get(f"/v1/models/{model['id']}").json() == model
    assert set(listed["models"][0]) <= set(ModelEntry.model_fields)
    missing = client.get("/v1/models/another")
    assert (missing.status_code, missing.json()["error"]["kind"]) == (404, "not_found")


def test_a_model_that_is_not_served_has_no_name(open_app: Serve, tmp_path: Path) -> None:
    """Nor has an alias of it."""
    client = open_app(open_fake, checkpoint=tmp_path, aliases="rerank-v3.5")
    assert client.get("/v1/models").json()["data"] == []
