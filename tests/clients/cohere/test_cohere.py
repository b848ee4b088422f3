"""Cohere's SDK, v2, v1 and asynchronous."""

from __future__ import annotations

import asyncio

import cohere
import pytest


def test_v2(url: str, question: str, texts: list[str], model: str, order: list[int]) -> None:
    """The places and scores come back, cut to `top_n`."""
    with cohere.ClientV2(base_url=url, api_key="none") as client:
        answer = client.rerank(model=model, query=question, documents=texts)
        best = client.rerank(model=model, query=question, documents=texts, top_n=1, max_tokens_per_doc=4096)
    assert [result.index for result in answer.results] == order
    assert answer.results[0].relevance_score > 0.5
    assert [result.index for result in best.results] == order[:1]


def test_v2_asynchronous(url: str, question: str, texts: list[str], model: str, order: list[int]) -> None:
    """The same from the asynchronous client."""

    async def ask() -> list[int]:
        async with cohere.AsyncClientV2(base_url=url, api_key="none") as client:
            answer = await client.rerank(model=model, query=question, documents=texts)
        return [result.index for result in answer.results]

    assert asyncio.run(ask()) == order


def test_v1_returns_documents(url: str, question: str, texts: list[str], model: str, order: list[int]) -> None:
    """`return_documents` brings the texts."""
    with cohere.Client(base_url=url, api_key="none") as client:
        answer = client.rerank(model=model, query=question, documents=texts, return_documents=True)
    assert [result.index for result in answer.results] == order
    assert [result.document.text for result in answer.results if result.document] == [texts[place] for place in order]


def test_an_unknown_model_is_its_own_error(url: str, question: str, texts: list[str]) -> None:
    """404 becomes the SDK's exception."""
    with cohere.ClientV2(base_url=url, api_key="none") as client, pytest.raises(cohere.NotFoundError):
        client.rerank(model="another", query=question, documents=texts)
