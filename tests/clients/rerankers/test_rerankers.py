"""AnswerDotAI's `rerankers` with the services whose URL it lets its users set."""

from __future__ import annotations

import pytest
from rerankers.models.api_rankers import APIRanker

from conftest import Task


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        ("cohere", "/v1/rerank"),
        ("jina", "/v1/rerank"),
        ("jina", "/jina/v1/rerank"),
        ("voyage", "/v1/rerank"),
        ("text-embeddings-inference", "/rerank"),
    ],
)
def test_rank(task: Task, provider: str, path: str) -> None:
    """All texts, best first, and the score of a single one."""
    ranker = APIRanker(task.model, api_key="none", api_provider=provider, url=task.url + path)
    results = ranker.rank(task.question, task.documents).results
    assert [result.document.doc_id for result in results] == task.order
    assert results[0].score > 0.5
