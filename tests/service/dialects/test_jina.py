from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, ranker_config

MODEL = "jina-reranker-v2-base-multilingual"
QUERY = {"model": MODEL, "query": "how tall?", "documents": ["it is old", "330 metres", {"text": "made of iron"}]}
TEXTS = ["it is old", "330 metres", "made of iron"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Text(Strict):
    text: str


class Place(Strict):
    index: int
    relevance_score: float
    document: Text | None = None


class Usage(Strict):
    total_tokens: int
    prompt_tokens: int | None = None


class Published(Strict):
    """Jina's published answer."""

    model: str
    object: str
    usage: Usage
    results: list[Place]


@pytest.fixture
def jina(serve: Serve) -> TestClient:
    return serve(FakeBackend(ranker_config(schedule=(0.4, 0.4))), aliases=MODEL)


def test_the_answer_is_the_published_one_in_the_native_order(jina: TestClient) -> None:
    """The answer has the documents, which Jina returns by default, and scores never rise."""
    native = jina.post("/v1/rank", json={"question": QUERY["query"], "candidates": TEXTS}).json()["results"]
    answer = Published.model_validate(jina.post("/v1/rerank", json=QUERY).raise_for_status().json())
    assert answer.model == MODEL
    assert [place.index for place in answer.results] == [result["index"] for result in native]
    assert all(place.document == Text(text=TEXTS[place.index]) for place in answer.results)
    scores = [place.relevance_score for place in answer.results]
    assert scores == sorted(scores, reverse=True)
    assert answer.usage.total_tokens > 0


def test_documents_and_length_are_as_asked_for(jina: TestClient) -> None:
    """`return_documents: false` and `top_n`."""
    answer = jina.post("/v1/rerank", json=QUERY | {"return_documents": False, "top_n": 2}).json()
    assert len(answer["results"]) == 2
    assert all(set(place) == {"index", "relevance_score"} for place in answer["results"])


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"documents": []}, 422),
        ({"documents": [{"image": "x"}]}, 422),
        ({"query": " "}, 422),
        ({"return_embeddings": True}, 422),
        ({"model": "jina-other"}, 404),
    ],
)
def test_errors_carry_detail_and_request_id(jina: TestClient, change: dict[str, object], status: int) -> None:
    """Jina's error body."""
    response = jina.post("/v1/rerank", json=QUERY | change, headers={"X-Request-Id": "r-1"})
    assert response.status_code == status
    assert set(response.json()) == {"detail"}
    assert response.json()["detail"].startswith("[RID: r-1] ")
