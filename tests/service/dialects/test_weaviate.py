"""Weaviate starts its module when `/.well-known/ready` answers, and shows what `/meta` says."""

from __future__ import annotations

from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, ranker_config


def test_the_module_finds_a_ready_server_and_its_model(client: TestClient) -> None:
    """The probe answers below 300; the model's fields are an object."""
    assert client.get("/.well-known/ready").status_code == 200
    meta = client.get("/meta").raise_for_status().json()
    assert (meta["model"], meta["version"]) == ("fake-ranker", client.get("/v1/models").json()["models"][0]["version"])


def test_nothing_is_dropped(serve: Serve) -> None:
    """Weaviate joins the scores of several requests, which must all be of the last stage."""
    client = serve(FakeBackend(ranker_config(schedule=(0.5, 0.5))))
    texts = [f"candidate number {number}" for number in range(32)]
    native = client.post("/v1/rank", json={"question": "how tall?", "candidates": texts, "drop_ratio": 0}).json()
    answer = client.post("/rerank", json={"query": "how tall?", "documents": texts, "property": ""}).json()
    by_index = sorted(native["results"], key=lambda result: int(result["index"]))
    assert [each["score"] for each in answer["scores"]] == [result["score"] for result in by_index]


def test_a_client_learns_how_much_a_request_may_hold(serve: Serve) -> None:
    """`limits` of `/v1/models`: one candidate more is refused."""
    client = serve(FakeBackend(), max_candidates=7)
    limits = client.get("/v1/models").json()["limits"]
    assert limits == {"candidates": 7, "body_bytes": 4 * 1024 * 1024}
    body = {"query": "how tall?", "property": "", "documents": ["a"] * limits["candidates"]}
    assert client.post("/rerank", json=body).status_code == 200
    body["documents"] = ["a"] * (limits["candidates"] + 1)
    assert client.post("/rerank", json=body).status_code == 422
