from __future__ import annotations

import asyncio

import pytest
from h11 import LocalProtocolError
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Message, Scope

from cerberank_service.http.connections import ChangesHeaders, IgnoresLostClients, without_header

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}


@pytest.mark.parametrize("error", [LocalProtocolError("must close"), ConnectionResetError()])
def test_an_answer_that_cannot_be_sent_is_no_error_of_the_app(error: Exception) -> None:
    """Nothing is raised, nothing more is sent, and the request lasts until the server knows the connection's end."""
    sent: list[str] = []
    events = iter(["http.request", "http.disconnect"])

    async def receive() -> Message:
        return {"type": next(events)}

    async def send(message: Message) -> None:
        sent.append(message["type"])
        raise error

    asyncio.run(IgnoresLostClients(PlainTextResponse("text"))(SCOPE, receive, send))
    assert sent == ["http.response.start"]
    assert list(events) == []


def test_a_header_of_the_server_is_left_out() -> None:
    """In any case of its letters; the other headers and the body stay."""
    text = PlainTextResponse("text", headers={"X-Request-Id": "1", "X-Other": "2"})
    app = ChangesHeaders(text, lambda headers: without_header(headers, b"x-request-id"))
    answer = TestClient(app).get("/")
    assert (answer.text, answer.headers.get("X-Request-Id"), answer.headers["X-Other"]) == ("text", None, "2")
