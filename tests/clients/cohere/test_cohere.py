"""Cohere's SDK, v2, v1 and asynchronous."""

from __future__ import annotations

import asyncio

import cohere
import pytest

from conftest import Task


def test_v2(task: Task) -> None:
    """The places and scores come back, cut to `top_n`."""
    with cohere.ClientV2(base_url=task.url, api_key="none") as client:
        answer = client.rerank(model=task.model, query=task.question, documents=task.documents)
        best = client.rerank(
            model=task.model, query=task.question, documents=task.documents, top_n=1, max_tokens_per_doc=4096
        )
    assert [result.index for result in answer.results] == task.order
    assert answer.results[0].relevance_score > 0.5
    assert [result.index for result in best.results] == task.order[:1]


def test_v2_asynchronous(task: Task) -> None:
    """The same from the asynchronous client."""

    async def ask() -> list[int]:
        async with cohere.AsyncClientV2(base_url=task.url, api_key="none") as client:
            answer = await client.rerank(model=task.model, query=task.question, documents=task.documents)
        return [result.index for result in answer.results]

    assert asyncio.run(ask()) == task.order


def test_v1_returns_documents(task: Task) -> None:
    """`return_documents` brings the texts."""
    with cohere.Client(base_url=task.url, api_key="none") as client:
        answer = client.rerank(model=task.model, query=task.question, documents=task.documents, return_documents=True)
    assert [result.index for result in answer.results] == task.order
    assert [result.document.text for result in answer.results if result.document] == task.ranked


def test_an_unknown_model_is_its_own_error(task: Task) -> None:
    """404 becomes the SDK's exception."""
    with cohere.ClientV2(base_url=task.url, api_key="none") as client, pytest.raises(cohere.NotFoundError):
        client.rerank(model="another", query=task.question, documents=task.documents)
