"""The requests of servers that call a reranker themselves, after their published sources; the servers do not run here.

Weaviate's module reranker-transformers (`modules/reranker-transformers/clients`), the README of llama.cpp's server, the
specifications of Lemonade and OpenVINO Model Server, Milvus's rerank function with its vLLM and TEI providers, and
OpenSearch's connector for `cohere.rerank`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from conftest import Task

WEAVIATE_DOCUMENTS = 32
"""Weaviate sends so many documents in one request, and the requests of a query at the same time."""


def post(task: Task, path: str, body: dict[str, Any]) -> Any:
    answer = httpx.post(task.url + path, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_weaviate_waits_until_it_is_ready_and_reads_its_meta(task: Task) -> None:
    """At its start Weaviate waits, half a second a request, for a status below 300; it shows `/meta` in its own."""
    assert httpx.get(f"{task.url}/.well-known/ready", timeout=0.5).status_code <= 299
    assert httpx.get(f"{task.url}/meta").json()["model"] == task.model


def test_weaviate_joins_the_scores_of_several_requests(task: Task) -> None:
    """Seventy documents in three requests at once: scores in the order of the documents, comparable with each other."""
    documents = [*task.texts, *(f"Bee number {number} makes honey." for number in range(66))]
    parts = [documents[start : start + WEAVIATE_DOCUMENTS] for start in range(0, len(documents), WEAVIATE_DOCUMENTS)]

    def rerank(part: list[str]) -> list[tuple[str, float]]:
        answer = post(task, "/rerank", {"query": task.question, "documents": part, "property": ""})
        assert answer["query"] == task.question
        return [(each["document"], each["score"]) for each in answer["scores"]]

    with ThreadPoolExecutor(len(parts)) as pool:
        joined = [each for part in pool.map(rerank, parts) for each in part]
    assert [text for text, _ in joined] == documents
    scores = dict(joined)
    assert sorted(task.texts, key=lambda text: -scores[text]) == task.ranked
    assert max(scores, key=lambda text: scores[text]) == task.ranked[0]


def test_weaviate_shows_the_message_of_an_error(task: Task) -> None:
    """Its client reads `error` where the status is not 200."""
    answer = httpx.post(f"{task.url}/rerank", json={"query": " ", "documents": ["a"], "property": ""})
    assert answer.status_code == 422
    assert "query" in answer.json()["error"]


@pytest.mark.parametrize(
    "path", ["/rerank", "/v1/rerank", "/v1/reranking", "/reranking", "/api/v1/reranking", "/v3/rerank"]
)
def test_llama_cpp_lemonade_and_openvino(task: Task, path: str) -> None:
    """The request of the server's README, at its paths, and at those of Lemonade and OpenVINO Model Server."""
    body = {"model": task.model, "query": task.question, "top_n": 3, "documents": task.documents}
    answer = post(task, path, body)
    assert [each["index"] for each in answer["results"]] == task.order[:3]
    scores = [each["relevance_score"] for each in answer["results"]]
    assert scores == sorted(scores, reverse=True)


def test_milvus_with_its_vllm_provider(task: Task) -> None:
    """Milvus puts `relevance_score` back to the places that `index` names."""
    answer = post(task, "/rerank", {"query": task.question, "documents": task.documents, "truncate_prompt_tokens": 256})
    assert [each["index"] for each in answer["results"]] == task.order
    assert all(isinstance(each["relevance_score"], float) for each in answer["results"])


def test_milvus_with_its_tei_provider(task: Task) -> None:
    """A bare list of index and score."""
    body = {"query": task.question, "texts": task.documents, "truncate": True, "truncation_direction": "Right"}
    assert [each["index"] for each in post(task, "/rerank", body)] == task.order


def test_opensearch(task: Task) -> None:
    """The body of the connector's blueprint, whose post-processing reads `relevance_score` and `index`."""
    body = {"documents": task.documents, "query": task.question, "model": task.model, "top_n": len(task.texts)}
    answer = post(task, "/v1/rerank", body)
    assert [each["index"] for each in answer["results"]] == task.order
