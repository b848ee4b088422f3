"""Haystack's rankers: Cohere, Jina, NVIDIA, text-embeddings-inference and vLLM."""

from __future__ import annotations

from typing import Any

import pytest
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.rankers.cohere import CohereRanker
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.jina import JinaRanker
from haystack_integrations.components.rankers.nvidia import NvidiaRanker
from haystack_integrations.components.rankers.vllm import VLLMRanker

KEY = Secret.from_token("none")


def rankers(url: str, model: str, top_k: int) -> list[Any]:
    """Each with the URL that it asks for."""
    return [
        CohereRanker(model, top_k, KEY, api_base_url=url),
        JinaRanker(model, KEY, top_k, base_url=f"{url}/jina/v1/rerank"),
        NvidiaRanker(model, api_url=f"{url}/v1", api_key=KEY, top_k=top_k),
        NvidiaRanker(model, truncate="END", api_url=f"{url}/v1", api_key=KEY, top_k=top_k),
        HuggingFaceTEIRanker(url=url, top_k=top_k, token=KEY),
        HuggingFaceTEIRanker(url=url, top_k=top_k, raw_scores=True, token=KEY),
        VLLMRanker(model=model, api_key=KEY, api_base_url=f"{url}/vllm/v1", top_k=top_k),
    ]


@pytest.mark.parametrize("top_k", [2, 4])
def test_every_ranker_gives_the_order(
    url: str, question: str, texts: list[str], model: str, order: list[int], top_k: int
) -> None:
    """As documents."""
    for ranker in rankers(url, model, top_k):
        if hasattr(ranker, "warm_up"):
            ranker.warm_up()
        found = ranker.run(query=question, documents=[Document(content=text) for text in texts])["documents"]
        assert [texts.index(document.content) for document in found] == order[:top_k], type(ranker).__name__
