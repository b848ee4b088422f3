from __future__ import annotations

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, JsonValue
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, SECRET, FakeBackend, ranker_config
from tests.service.observe import samples

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


def test_the_answer_is_the_published_one_in_the_native_order(serve: Serve) -> None:
    """The answer always has the documents, and scores never rise."""
    client = serve(FakeBackend(ranker_config(schedule=(0.4, 0.4))))
    native = client.post("/v1/rank", json={"question": QUERY["query"], "candidates": QUERY["documents"]}).json()
    answer = Published.model_validate(client.post("/rerank", json=QUERY).raise_for_status().json())
    assert [place.index for place in answer.results] == [result["index"] for result in native["results"]]
    assert all(place.document.text == QUERY["documents"][place.index] for place in answer.results)
    scores = [place.relevance_score for place in answer.results]
    assert scores == sorted(scores, reverse=True)
    assert answer.usage.total_tokens == native["usage"]["tokens"]


@pytest.mark.parametrize(("top_n", "given"), [(0, 3), (None, 3), (1, 1), (9, 3)])
def test_top_n_of_nought_is_all(client: TestClient, top_n: int | None, given: int) -> None:
    """The meaning of 0 is vLLM's."""
    assert len(client.post("/rerank", json=QUERY | {"top_n": top_n}).json()["results"]) == given


def test_without_activation_scores_are_log_odds(client: TestClient) -> None:
    """The sigmoid of one is the other."""
    body = [QUERY, QUERY | {"use_activation": False}]
    scores, raw = (
        np.asarray([place["relevance_score"] for place in client.post("/rerank", json=each).json()["results"]])
        for each in body
    )
    np.testing.assert_allclose(1 / (1 + np.exp(-raw)), scores, atol=1e-9)


def test_a_single_document_is_taken_and_fields_without_effect_are_counted(client: TestClient) -> None:
    """What vLLM's own request may hold; nothing that asks for another reading is swallowed in silence."""
    common = {"user": "u", "max_tokens_per_query": 5, "priority": 3, "padding": "x"}
    answer = client.post("/rerank", json={"query": "how tall?", "documents": "330 metres"} | common)
    assert len(answer.raise_for_status().json()["results"]) == 1
    assert samples(client)["cerberank_ignored_fields_total{dialect=vllm}"] == len(common)


@pytest.mark.parametrize(("asked", "documents"), [({}, [None] * 3), ({"return_documents": True}, QUERY["documents"])])
def test_infinity_s_documents_are_texts(client: TestClient, asked: dict[str, object], documents: list[object]) -> None:
    """`raw_scores` tells Infinity from vLLM; the answer has the object that its client checks."""
    answer = client.post("/rerank", json=QUERY | {"raw_scores": False} | asked).raise_for_status().json()
    assert answer["object"] == "rerank"
    assert [result["document"] for result in answer["results"]] == [
        documents[result["index"]] for result in answer["results"]
    ]
    assert len(client.post("/rerank", json=QUERY | {"raw_scores": False, "top_n": 1}).json()["results"]) == 1


def test_infinity_s_raw_scores_are_log_odds(client: TestClient) -> None:
    """The sigmoid of one is the other."""
    scores, raw = (
        np.asarray([r["relevance_score"] for r in client.post("/rerank", json=QUERY | asked).json()["results"]])
        for asked in ({"raw_scores": False}, {"raw_scores": True})
    )
    np.testing.assert_allclose(1 / (1 + np.exp(-raw)), scores, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "status", "kind"),
    [
        ({"documents": []}, 400, "BadRequestError"),
        ({"query": " "}, 400, "BadRequestError"),
        ({"top_n": -1}, 400, "BadRequestError"),
        ({"truncation_side": "left"}, 400, "BadRequestError"),
        ({"model": "other"}, 404, "NotFoundError"),
        ({"documents": [RAISES]}, 500, "InternalServerError"),
    ],
)
def test_errors_have_vllm_s_format(client: TestClient, change: dict[str, object], status: int, kind: str) -> None:
    """400 where others say 422, and the code once more in the body."""
    response = client.post("/rerank", json=QUERY | change)
    assert response.status_code == status
    error = response.json()["error"]
    assert (error["type"], error["param"], error["code"]) == (kind, None, status)
    assert SECRET not in response.text
