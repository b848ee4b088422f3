from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from cerberank_service.http.disconnect import unless_disconnected


def request(messages: asyncio.Queue[dict[str, Any]]) -> Request:
    """A request whose server says what is put into the queue."""
    return Request({"type": "http"}, receive=messages.get)


def test_the_work_of_a_client_that_stays_is_done() -> None:
    """The result is returned, and the task that watches the connection ends."""

    async def scenario() -> tuple[str | None, int]:
        async def work() -> str:
            await asyncio.sleep(0)
            return "done"

        result = await unless_disconnected(request(asyncio.Queue()), work())
        return result, len(asyncio.all_tasks())

    assert asyncio.run(scenario()) == ("done", 1)


def test_the_work_of_a_client_that_goes_is_cancelled() -> None:
    """Stray messages before are not disconnection."""
    ended: list[str] = []

    async def scenario() -> None:
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        async def work() -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            return "never"

        messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        waiting = asyncio.ensure_future(unless_disconnected(request(messages), work()))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        messages.put_nowait({"type": "http.disconnect"})
        assert await waiting is None
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())
    assert ended == ["cancelled"]


def test_an_error_of_the_work_is_raised() -> None:
    """The error reaches the caller unchanged."""

    async def scenario() -> None:
        async def work() -> str:
            raise ValueError("its own")

        await unless_disconnected(request(asyncio.Queue()), work())

    with pytest.raises(ValueError, match="its own"):
        asyncio.run(scenario())
