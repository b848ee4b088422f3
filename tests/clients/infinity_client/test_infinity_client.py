"""Infinity's own client, made from its OpenAPI document."""

from __future__ import annotations

import pytest
from infinity_client import Client
from infinity_client.api.default import rerank
from infinity_client.models import RerankInput, ReRankResult

from conftest import Task


@pytest.mark.parametrize("path", ["", "/infinity"])
def test_rerank(task: Task, path: str) -> None:
    """Documents come back as texts, where they are asked for."""
    client = Client(base_url=task.url + path)
    asked = RerankInput(query=task.question, documents=task.documents, model=task.model, return_documents=True)
    answer = rerank.sync(client=client, body=asked)
    assert isinstance(answer, ReRankResult)
    assert [result.index for result in answer.results] == task.order
    assert [result.document for result in answer.results] == task.ranked


def test_raw_scores(task: Task) -> None:
    """Log-odds, cut to `top_n`, without texts."""
    asked = RerankInput(query=task.question, documents=task.documents, model=task.model, raw_scores=True, top_n=1)
    answer = rerank.sync(client=Client(base_url=task.url), body=asked)
    assert isinstance(answer, ReRankResult)
    assert [result.index for result in answer.results] == task.order[:1]
    assert answer.results[0].relevance_score > 1
    assert answer.results[0].document is None
