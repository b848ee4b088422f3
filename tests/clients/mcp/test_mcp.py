"""The MCP SDK's client over stdio, with `cerberank mcp` for the bundled model and for the service."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

from conftest import Task


def call(arguments: list[str], *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The results of calls to one server."""
    server = StdioServerParameters(command=os.environ["CERBERANK_PROGRAM"], args=["mcp", *arguments])

    async def ask() -> list[Any]:
        async with Client(stdio_client(server)) as client:
            return [await client.call_tool(name, values) for name, values in calls]

    return asyncio.run(ask())


@pytest.mark.parametrize("local", [True, False])
def test_rerank_and_filter(task: Task, local: bool) -> None:
    """The same ranking from both; of a question that no text answers, nothing is kept."""
    about = {"documents": task.documents, "query": task.question}
    other = about | {"query": "Who painted the ceiling of the chapel?"}
    calls = [("rerank", about), ("filter", about), ("filter", other), ("rerank", about | {"query": " "})]
    ranked, kept, nothing, refused = call([] if local else ["--url", task.url], *calls)
    assert [result["text"] for result in ranked.structured_content["results"]] == task.ranked
    assert [result["text"] for result in kept.structured_content["results"]] == task.ranked[:1]
    assert kept.structured_content["answerable"] > 0.9
    assert nothing.structured_content["results"] == []
    assert refused.is_error
    assert "must not be blank" in refused.content[0].text


def test_a_model_that_the_service_does_not_have(task: Task) -> None:
    """Its message names those that it has."""
    arguments = {"documents": task.documents, "query": task.question}
    (refused,) = call(["another", "--url", task.url], ("rerank", arguments))
    assert refused.is_error
    assert task.model in refused.content[0].text
