"""LangChain's `CohereRerank`, and the example's compressor."""

from __future__ import annotations

import re

import cohere
import pytest
from langchain_cohere import CohereRerank
from langchain_core.documents import Document

from conftest import Task


@pytest.mark.parametrize("top_n", [2, None])
def test_documents_are_compressed(task: Task, top_n: int | None) -> None:
    """Documents keep their metadata and get their score."""
    with cohere.ClientV2(api_key="none", base_url=task.url) as client:
        ranker = CohereRerank(client=client, model=task.model, top_n=top_n)
        documents = [Document(text, metadata={"place": place}) for place, text in enumerate(task.texts)]
        kept = ranker.compress_documents(documents, task.question)
    assert [document.metadata["place"] for document in kept] == task.order[:top_n]
    assert kept[0].metadata["relevance_score"] > 0.5


def test_objects_by_their_fields(task: Task) -> None:
    """It writes the fields as YAML into one text."""
    with cohere.ClientV2(api_key="none", base_url=task.url) as client:
        ranker = CohereRerank(client=client, model=task.model)
        documents = [{"title": "", "body": text} for text in task.texts]
        found = ranker.rerank(documents, task.question, rank_fields=["title", "body"], top_n=1)
    assert found[0]["index"] == task.order[0]


def test_the_page_s_block(task: Task) -> None:
    """That of docs/integrations.md."""
    assert task.run_block("integrations.md", "import cohere")["best"][0].page_content == task.texts[1]


def test_a_compressor_of_one_s_own(task: Task) -> None:
    """examples/langchain_compressor.py keeps metadata, and adds probabilities; nothing else answers."""
    printed = task.example("langchain_compressor.py")
    assert re.fullmatch(r"(.*) {'line': 1, 'score': 0.9\d+, 'answerable': 0.9\d+}\n", printed)[1] == task.texts[1]
