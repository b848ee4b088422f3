"""LangChain community's `InfinityRerank` and `JinaRerank`."""

from __future__ import annotations

import pytest
from infinity_client import Client
from langchain_community.document_compressors import InfinityRerank, JinaRerank, jina_rerank
from langchain_core.documents import Document

from conftest import Task


@pytest.mark.parametrize("path", ["", "/infinity"])
def test_infinity(task: Task, path: str) -> None:
    """The best two documents with their scores."""
    ranker = InfinityRerank(client=Client(base_url=task.url + path), model=task.model, top_n=2)
    kept = ranker.compress_documents([Document(text) for text in task.texts], task.question)
    assert [document.page_content for document in kept] == task.ranked[:2]
    assert kept[0].metadata["relevance_score"] > 0.5


@pytest.mark.parametrize("path", ["/v1/rerank", "/jina/v1/rerank"])
def test_jina(task: Task, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its URL is a constant of the module, which its users change as well."""
    monkeypatch.setattr(jina_rerank, "JINA_API_URL", task.url + path)
    ranker = JinaRerank(jina_api_key="none", model=task.model, top_n=2)
    kept = ranker.compress_documents([Document(text) for text in task.texts], task.question)
    assert [document.page_content for document in kept] == task.ranked[:2]
