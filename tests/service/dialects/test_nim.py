from __future__ import annotations

from typing import Any

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


def test_the_hosted_path_answers_the_same(client: TestClient) -> None:
    """The path of the API that NVIDIA hosts has the model's name in it."""
    answer = client.post(PATH, json=BODY).raise_for_status().json()
    assert client.post("/v1/retrieval/nvidia/a-model/reranking", json=BODY).json() == answer
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"]


def test_fields_of_other_versions_have_no_effect(client: TestClient) -> None:
    """At any depth; an instruction is for models with a prompt, of which this is none."""
    passages = [passage | {"image": None} for passage in BODY["passages"]]
    known = client.post(PATH, json=BODY).json()
    assert client.post(PATH, json=BODY | {"passages": passages, "user": "me", "instruction": "i"}).json() == known


def test_a_missing_key_is_an_authentication_error(serve: Serve, tmp_path: Any) -> None:
    """The status is the kind's, the type NIM's."""
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": []}')
    response = serve(FakeBackend(), keys_file=keys).post(PATH, json=BODY)
    assert (response.status_code, response.json()["type"]) == (401, "authentication_error")


def test_a_path_that_no_route_matches_is_refused_in_the_same_format(client: TestClient) -> None:
    """A line feed ends Starlette's patterns; the client reads NIM's error body there too."""
    response = client.post("/v1/retrieval/a%0Amodel/reranking", json=BODY)
    assert (response.status_code, response.json()["object"]) == (404, "error")
