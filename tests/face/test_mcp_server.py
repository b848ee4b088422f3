"""The tools of `cerberank mcp`, asked by the SDK's own client in this process; tests/clients/mcp asks over stdio."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from cerberank.cli import main
from cerberank.mcp_server import KEY, server_of
from mcp.client import Client
from mcp.server import MCPServer
from tests.http_server import Asked, answering

from cerberank_models.answer import Answer, Result
from cerberank_models.calibration import CalibrationError

CALL = {"query": "how tall?", "documents": ["it is old", "330 metres"]}


def rank(question: str, candidates: list[str], **options: Any) -> Answer:
    """An answer with the second text alone; a model without calibration."""
    if "min_precision" in options:
        raise CalibrationError("min_precision: this model is not calibrated")
    assert (question, candidates) == tuple(CALL.values())
    assert options in ({"top_k": None}, {"top_k": 1}, {"min_score": 0.5})
    results = (Result(index=1, score=0.98765432, stage=2),)
    return Answer(results=results, model="fake", version="7", answerable=0.99, warnings=("a text was cut",))


def test_the_tools_answer_with_texts_and_probabilities() -> None:
    """Both in one shape; what the model refuses is the tool's error, whose message says what is wrong."""

    async def ask() -> list[Any]:
        async with Client(server_of(rank)) as client:
            calls = [("rerank", CALL), ("rerank", CALL | {"top_n": 1}), ("filter", CALL | {"min_score": 0.5})]
            listed = [(tool.name, tool.annotations.read_only_hint) for tool in (await client.list_tools()).tools]
            assert listed == [("rerank", True), ("filter", True)]
            return [await client.call_tool(name, arguments) for name, arguments in [*calls, ("filter", CALL)]]

    *answers, refused = asyncio.run(ask())
    assert [answer.structured_content for answer in answers] == 3 * [
        {
            "answerable": 0.99,
            "results": [{"index": 1, "score": 0.9877, "text": "330 metres"}],
            "warnings": ["a text was cut"],
        }
    ]
    assert refused.is_error
    assert "this model is not calibrated" in refused.content[0].text


def served(monkeypatch: pytest.MonkeyPatch, *words: str) -> MCPServer:
    """The server that `cerberank mcp` runs."""
    running: list[MCPServer] = []

    def run(server: MCPServer) -> None:
        running.append(server)

    monkeypatch.setattr(MCPServer, "run", run)
    assert main(["mcp", *words]) == 0
    return running[0]


def test_the_bundled_model_answers_calls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ranker takes one at a time."""
    server = served(monkeypatch)
    call = {"query": "How tall is the Eiffel Tower?", "documents": ["It is old.", "The tower is 330 metres tall."]}

    async def ask() -> list[Any]:
        async with Client(server) as client:
            return await asyncio.gather(*(client.call_tool("filter", call) for _ in range(3)))

    answers = [answer.structured_content for answer in asyncio.run(ask())]
    assert [result["text"] for result in answers[0]["results"]] == call["documents"][1:]
    assert answers == 3 * answers[:1]


def test_a_service_is_asked_with_the_key_and_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key comes from the environment, as programs that start the server give secrets."""
    asked: list[Asked] = []
    answer = rank(*CALL.values(), top_k=1).to_json()
    monkeypatch.setenv(KEY, "secret")

    async def ask(server: MCPServer) -> Any:
        async with Client(server) as client:
            return await client.call_tool("rerank", CALL | {"top_n": 1})

    with answering(lambda each: asked.append(each) or (200, answer, {})) as url:
        got = asyncio.run(ask(served(monkeypatch, "m@canary", "--url", url)))
    assert [result["index"] for result in got.structured_content["results"]] == [1]
    assert asked[0].headers["authorization"] == "Bearer secret"
    body = {"question": "how tall?", "candidates": CALL["documents"], "model": "m@canary", "top_k": 1}
    assert json.loads(asked[0].body) == body
