"""Stops work that nobody waits for any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

ResultT = TypeVar("ResultT")


async def unless_gone(request: Request, work: Coroutine[Any, Any, ResultT]) -> ResultT | None:
    """What `work` gives or raises; None when the client disconnects before, and `work` is cancelled.

    The body must have been read: until then its chunks would be taken for a disconnection.
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


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
