"""Cancels the work of a request whose client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request

ResultT = TypeVar("ResultT")


async def unless_disconnected(request: Request, work: Awaitable[ResultT]) -> ResultT | None:
    """Await `work`; returns None and cancels it when the client disconnects first.

    The body must have been received completely: this function consumes the connection's messages.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)
        del task, watch, each  # an error's traceback references this frame; the variables would close a cycle


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
