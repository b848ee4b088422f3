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

from conftest import Task

KEY = Secret.from_token("none")
COMMON = {"model": Task.model, "api_key": KEY, "top_k": 3}


def ranked(ranker: Any, task: Task) -> list[str]:
    """The texts in the ranker's order."""
    if hasattr(ranker, "warm_up"):
        ranker.warm_up()
    documents = [Document(content=text) for text in task.texts]
    return [document.content for document in ranker.run(query=task.question, documents=documents)["documents"]]


def test_cohere(task: Task) -> None:
    """By Cohere's SDK, with `max_tokens_per_doc`."""
    assert ranked(CohereRanker(api_base_url=task.url, **COMMON), task) == task.ranked[:3]


def test_jina(task: Task) -> None:
    """With the path of its own."""
    assert ranked(JinaRanker(base_url=f"{task.url}/jina/v1/rerank", **COMMON), task) == task.ranked[:3]


@pytest.mark.parametrize("options", [{}, {"truncate": "END"}])
def test_nvidia(task: Task, options: dict[str, str]) -> None:
    """It looks the model up in `/v1/models` first."""
    assert ranked(NvidiaRanker(api_url=f"{task.url}/v1", **COMMON, **options), task) == task.ranked[:3]


@pytest.mark.parametrize("raw_scores", [False, True])
def test_text_embeddings_inference(task: Task, raw_scores: bool) -> None:
    """Probabilities or log-odds, with the field for the direction of truncation."""
    ranker = HuggingFaceTEIRanker(url=task.url, top_k=3, raw_scores=raw_scores, token=KEY)
    assert ranked(ranker, task) == task.ranked[:3]


def test_vllm(task: Task) -> None:
    """With vLLM's prefix before `/v1`, whose own path is Cohere's and Jina's."""
    assert ranked(VLLMRanker(api_base_url=f"{task.url}/vllm/v1", **COMMON), task) == task.ranked[:3]
    assert ranked(VLLMRanker(api_base_url=f"{task.url}/v1", **COMMON), task) == task.ranked[:3]
