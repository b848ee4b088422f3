from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, JsonValue
from starlette.testclient import TestClient
from tests.service.observe import logged_fields

QUERY = {"model": "fake-ranker", "query": "how tall?", "documents": ["it is old", "330 metres", "made of iron"]}


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Document(Strict):
    text: str | None = None
    multi_modal: list[JsonValue] | None = None


class Place(Strict):
    index: int
    document: Document
    relevance_score: float


class Usage(Strict):
    prompt_tokens: int
    total_tokens: int


class Published(Strict):
    """vLLM's published RerankResponse."""

    id: str
    model: str
    usage: Usage
    results: list[Place]


def test_the_answer_is_the_published_one(client: TestClient) -> None:
    """VLLM's own client reads no other fields; Infinity's checks the kind of object besides."""
    Published.model_validate(client.post("/rerank", json=QUERY).raise_for_status().json())
    assert client.post("/rerank", json=QUERY | {"raw_scores": False}).json()["object"] == "rerank"


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (["a", None], "documents[1]: must be a text"),
        (["a", 3.5], "documents[1]: must be a text"),
        ({"text": "a"}, "documents: must be a text or a list of texts"),
        (None, "documents: must be a text or a list of texts"),
    ],
)
def test_a_wrong_document_is_named_once(client: TestClient, documents: object, message: str) -> None:
    """Without the branch of a type that was not meant."""
    for path, fields in (("/rerank", {"query": "q"}), ("/score", {"queries": "q"})):
        refused = client.post(path, json={**fields, "documents": documents})
        if path == "/score" and documents is None:
            message = "body: must have text_1 (the query) and text_2"
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].startswith(message)


def test_a_single_document_is_taken_and_fields_without_effect_are_logged(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The fields of vLLM's own request are accepted; a field that asks for another reading is not ignored silently."""
    common = {"user": "u", "max_tokens_per_query": 5, "priority": 3, "padding": "x"}
    answer = client.post("/rerank", json={"query": "how tall?", "documents": "330 metres"} | common)
    assert len(answer.raise_for_status().json()["results"]) == 1
    assert logged_fields(caplog) == list(common)
