"""LangChain's `CohereRerank`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cohere
import pytest
from langchain_cohere import CohereRerank
from langchain_core.documents import Document

from conftest import Task

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "langchain_rerank.py"


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


def test_the_example(task: Task) -> None:
    """examples/langchain_rerank.py, as it stands."""
    environment = os.environ | {"CERBERANK_URL": task.url}
    printed = subprocess.run([sys.executable, EXAMPLE], env=environment, capture_output=True, check=True).stdout
    assert printed.decode().startswith(task.texts[1])
