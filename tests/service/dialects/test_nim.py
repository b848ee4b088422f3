from __future__ import annotations

import math
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend

TEXTS = ["it is old", "330 metres", "made of iron"]
BODY: dict[str, Any] = {
    "model": "fake-ranker",
    "query": {"text": "how tall?"},
    "passages": [{"text": text} for text in TEXTS],
}
PATH = "/v1/ranking"


def test_logits_are_the_log_odds_of_the_native_scores(client: TestClient) -> None:
    """All passages, best first, with NIM's names; the hosted API's path answers the same."""
    native = client.post("/v1/rank", json={"question": "how tall?", "candidates": TEXTS, "drop_ratio": 0}).json()
    answer = client.post(PATH, json=BODY).raise_for_status().json()
    assert [rank["index"] for rank in answer["rankings"]] == [result["index"] for result in native["results"]]
    expected = [math.log(result["score"] / (1 - result["score"])) for result in native["results"]]
    assert [rank["logit"] for rank in answer["rankings"]] == pytest.approx(expected, rel=1e-9)
    assert answer["usage"] == {"prompt_tokens": native["usage"]["tokens"], "total_tokens": native["usage"]["tokens"]}
    assert client.post("/v1/retrieval/nvidia/a-model/reranking", json=BODY).json() == answer


def test_fields_of_other_versions_have_no_effect(client: TestClient) -> None:
    """At any depth; an instruction is for models with a prompt, of which this is none."""
    passages = [passage | {"image": None} for passage in BODY["passages"]]
    known = client.post(PATH, json=BODY).json()
    assert client.post(PATH, json=BODY | {"passages": passages, "user": "me", "instruction": "i"}).json() == known


def test_truncate_none_refuses_what_would_be_cut(client: TestClient) -> None:
    """END cuts it; a text that windows hold to its end is not cut."""
    long = BODY | {"passages": [{"text": "abcdefg " * 60}]}
    assert client.post(PATH, json=long | {"truncate": "NONE"}).status_code == 200
    long = BODY | {"passages": [{"text": "abcdefg " * 20_000}]}
    assert client.post(PATH, json=long | {"truncate": "END"}).status_code == 200
    assert client.post(PATH, json=long).status_code == 200
    refused = client.post(PATH, json=long | {"truncate": "NONE"})
    assert (refused.status_code, refused.json()["type"]) == (422, "invalid_request_error")
    assert client.post(PATH, json=BODY | {"truncate": "NONE"}).status_code == 200


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"query": {"text": " "}}, 422, "query.text: must not be blank"),
        ({"query": "how tall?"}, 422, "query: Input should be an object"),
        ({"passages": ["a"]}, 422, "passages[0]: Input should be an object"),
        ({"model": "another"}, 404, "there is no model"),
    ],
)
def test_errors_have_nim_s_body(client: TestClient, changes: dict[str, Any], status: int, said: str) -> None:
    """With the field at fault."""
    response = client.post(PATH, json=BODY | changes)
    assert response.status_code == status
    assert response.json().keys() == {"object", "message", "detail", "type"}
    assert said in response.json()["message"]


def test_a_missing_key_is_an_authentication_error(serve: Serve, tmp_path: Any) -> None:
    """The status is the kind's, the type NIM's."""
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": []}')
    response = serve(FakeBackend(), keys_file=keys).post(PATH, json=BODY)
    assert (response.status_code, response.json()["type"]) == (401, "authentication_error")
