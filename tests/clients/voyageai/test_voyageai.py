"""Voyage's SDK, and the example of docs/dialects.md."""

from __future__ import annotations

import asyncio

import pytest
import voyageai

from conftest import Task


def test_the_page_s_example_asks_this_service(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that the SDK ignores would send texts and key to the vendor: nothing else can be reached here."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert task.run_block("dialects.md", "import voyageai")["best"] == 1


@pytest.mark.parametrize("path", ["/v1", "/voyage/v1"])
def test_rerank(task: Task, path: str) -> None:
    """The SDK reads places, texts and tokens, on the shared path and on Voyage's own."""
    client = voyageai.Client(api_key="none", base_url=task.url + path)
    answer = client.rerank(task.question, task.documents, model=task.model, top_k=3)
    assert [result.index for result in answer.results] == task.order[:3]
    assert [result.document for result in answer.results] == task.ranked[:3]
    assert answer.total_tokens > 0
    answer = client.rerank(task.question, task.documents, model=task.model)
    assert [result.index for result in answer.results] == task.order


def test_rerank_asynchronous(task: Task) -> None:
    """The same from the asynchronous client."""
    client = voyageai.AsyncClient(api_key="none", base_url=f"{task.url}/v1")
    answer = asyncio.run(client.rerank(task.question, task.documents, model=task.model))
    assert [result.index for result in answer.results] == task.order


def test_typed_errors(task: Task) -> None:
    """422 becomes the SDK's own exception, with our message."""
    client = voyageai.Client(api_key="none", base_url=f"{task.url}/v1")
    with pytest.raises(voyageai.error.MalformedRequestError, match="documents"):
        client.rerank(task.question, [], model=task.model)
    with pytest.raises(voyageai.error.MalformedRequestError, match="was not read"):  # by no window of its 64
        client.rerank(task.question, ["word " * 20_000], model=task.model, truncation=False)
