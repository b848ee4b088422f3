"""LiteLLM's `rerank()` with each provider whose service this one stands in for."""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks GitHub for prices when it is imported

import litellm

from conftest import Task

PLACES = [
    ("cohere", ""),
    ("cohere", "/v1/rerank"),
    ("cohere", "/v2/rerank"),
    ("hosted_vllm", ""),
    ("hosted_vllm", "/vllm/v1"),
    ("jina_ai", ""),
    ("voyage", ""),
    ("voyage", "/v1"),
    ("huggingface", ""),
    ("infinity", "/infinity"),
    ("infinity", "/infinity/v1"),
    ("together_ai", "/v1"),
    ("azure_ai", ""),
    ("azure_ai", "/v1/rerank"),
    ("nvidia_nim", ""),
    ("nvidia_nim/ranking", ""),
]


def ask(task: Task, provider: str, path: str, **options: Any) -> Any:
    return litellm.rerank(
        model=f"{provider}/{task.model}",
        query=task.question,
        documents=task.documents,
        api_base=task.url + path,
        api_key="none",
        **options,
    )


@pytest.mark.parametrize(("provider", "path"), PLACES)
def test_all_come_back_with_their_texts(task: Task, provider: str, path: str) -> None:
    """LiteLLM asks for documents unless told otherwise."""
    answer = ask(task, provider, path)
    assert [result["index"] for result in answer.results] == task.order
    assert [result["document"]["text"] for result in answer.results] == task.ranked
    assert answer.results[0]["relevance_score"] > 0.5


@pytest.mark.parametrize(("provider", "path"), PLACES)
def test_top_n(task: Task, provider: str, path: str) -> None:
    """The best ones, without their texts."""
    answer = ask(task, provider, path, top_n=2, return_documents=False)
    assert [result["index"] for result in answer.results] == task.order[:2]


def test_an_instruction_for_vllm(task: Task) -> None:
    """LiteLLM passes it on; it is not a reason to refuse a question."""
    assert ask(task, "hosted_vllm", "", instruction="Rank answers.").results[0]["index"] == task.order[0]


def test_the_page_s_block(task: Task) -> None:
    """That of docs/integrations.md."""
    assert task.run_block("integrations.md", "import litellm")["answer"].results[0]["index"] == 1
