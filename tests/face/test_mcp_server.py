"""The tools of `cerberank mcp`, asked by the SDK's own client in this process; tests/clients/mcp asks over stdio."""

from __future__ import annotations

import asyncio
from typing import Any

from cerberank.mcp_server import server_of
from mcp.client import Client

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
