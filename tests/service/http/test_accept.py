from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.accept import read_timeout, unless_disconnected


@pytest.mark.parametrize("value", ["", "soon", "0", "-1", "nan", "inf", "1e999", "1 s"])
def test_a_header_that_is_no_time_is_refused(value: str) -> None:
    """Ignored, it would be a deadline that silently does not hold."""
    with pytest.raises(ServiceError, match="X-Request-Timeout-Ms") as refused:
        read_timeout(value)
    assert refused.value.kind is Kind.INVALID


def request(messages: asyncio.Queue[dict[str, Any]]) -> Request:
    """A request whose server says what is put into the queue."""
    return Request({"type": "http"}, receive=messages.get)


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
