"""The worker threads, which parse, tokenise and render outside of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

from cerberank_service.errors import Kind, Refusal, ServiceError, panics_as_errors

ResultT = TypeVar("ResultT")

LARGE_BYTES = 256 * 1024
"""Bodies beyond this size (about a thousand candidates) are read by one separate thread. Parsing and tokenising them
takes up to seconds, and several of them would otherwise block all workers for small questions."""


class Workers:
    """A thread pool and a thread for large bodies, for the coroutines of one event loop."""

    def __init__(self, threads: int, *, large_seconds: float) -> None:
        """At most `threads` threads, and one for large bodies; threads start on demand.

        A large body waits at most `large_seconds` for its thread.
        """
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._large = ThreadPoolExecutor(1, thread_name_prefix="large-bodies")
        self._turns = _Turns(large_seconds)

    async def run(self, work: Callable[[], ResultT], *, body_bytes: int = 0) -> ResultT:
        """Run `work`, which reads a body of this size, in a thread; returns its result or raises its exception.

        A library's panic is raised as RuntimeError. Raises ServiceError (503) for a large body that has waited too
        long.
        """
        loop, work = asyncio.get_running_loop(), panics_as_errors()(work)
        if body_bytes <= LARGE_BYTES:
            return await loop.run_in_executor(self._pool, work)
        async with self._turns.taken(body_bytes):
            return await loop.run_in_executor(self._large, work)

    def close(self) -> None:
        """Wait for running work and cancel the work that has not started."""
        for pool in (self._pool, self._large):
            pool.shutdown(wait=True, cancel_futures=True)


class _Turns:
    """Lets large bodies take turns: one at a time, the smallest first.

    The time to read a body is unknown in advance (10 ms to seconds for 4 MB), so the wait is limited by time and not by
    a number of bodies. With the smallest first, a body that is just above `LARGE_BYTES` does not wait for the largest
    ones. A body that has to wait longer than the limit is refused.
    """

    def __init__(self, seconds: float) -> None:
        """A body waits at most `seconds`."""
        self._seconds, self._numbers, self._busy = seconds, count(), False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Wait for the turn of a body of `size` bytes, and keep it during the block. Raises ServiceError (503)."""
        if self._busy:
            await self._wait(size)
        self._busy = True
        try:
            yield
        finally:
            self._give()

    async def _wait(self, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (size, next(self._numbers), turn))
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done() and not turn.cancelled():  # the turn was given at the moment of the time-out
                self._give()
            if isinstance(error, asyncio.CancelledError):
                raise
            text = "too many large bodies are waiting to be read"
            raise ServiceError(Kind.UNAVAILABLE, text, retry_after=2, refusal=Refusal("queue")) from error

    def _give(self) -> None:
        """Give the turn to the smallest waiting body."""
        self._busy = False
        while self._waiting and not self._busy:
            *_, turn = heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                self._busy = True
