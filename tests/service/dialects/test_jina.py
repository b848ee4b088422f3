from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend

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


def test_the_answer_is_the_published_one(serve: Serve) -> None:
    """With the documents, texts and objects alike, and the name that was asked for."""
    client = serve(FakeBackend(), aliases=MODEL)
    answer = Published.model_validate(client.post("/v1/rerank", json=QUERY).raise_for_status().json())
    assert answer.model == MODEL
    assert all(place.document == Text(text=TEXTS[place.index]) for place in answer.results)
