"""LangChain's `CohereRerank`."""

from __future__ import annotations

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
