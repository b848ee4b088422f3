"""Voyage's SDK, and the example of docs/api.md."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import voyageai

PAGE = Path(__file__).resolve().parents[3] / "docs" / "api.md"


def test_the_page_s_example_asks_this_service(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that the SDK ignores would send texts and key to the vendor: nothing else can be reached here."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    (program,) = re.findall(r"```python\n(import voyageai\n.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(program.replace("http://127.0.0.1:8000", url), names)
    assert names["best"] == 1


@pytest.mark.parametrize("path", ["/v1", "/voyage/v1"])
def test_rerank(url: str, path: str, question: str, texts: list[str], model: str, order: list[int]) -> None:
    """The SDK reads places, texts and tokens, on the shared path and on Voyage's own."""
    client = voyageai.Client(api_key="none", base_url=url + path)
    answer = client.rerank(question, texts, model=model, top_k=3)
    assert [result.index for result in answer.results] == order[:3]
    assert [result.document for result in answer.results] == [texts[place] for place in order[:3]]
    assert answer.total_tokens > 0
    assert [result.index for result in client.rerank(question, texts, model=model).results] == order


def test_rerank_asynchronous(url: str, question: str, texts: list[str], model: str, order: list[int]) -> None:
    """The same from the asynchronous client."""
    client = voyageai.AsyncClient(api_key="none", base_url=f"{url}/v1")
    answer = asyncio.run(client.rerank(question, texts, model=model))
    assert [result.index for result in answer.results] == order


def test_typed_errors(url: str, question: str, model: str) -> None:
    """422 becomes the SDK's own exception, with our message."""
    client = voyageai.Client(api_key="none", base_url=f"{url}/v1")
    with pytest.raises(voyageai.error.MalformedRequestError, match="documents"):
        client.rerank(question, [], model=model)
    with pytest.raises(voyageai.error.MalformedRequestError, match="exceed"):
        client.rerank(question, ["word " * 5000], model=model, truncation=False)
