"""The threads that parse, tokenise and render outside of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

ResultT = TypeVar("ResultT")

LARGE_BYTES = 256 * 1024
"""Bodies beyond this size (about a thousand candidates) are read by one thread of their own: parsing and tokenising
them takes tens of milliseconds, for which small questions would wait behind several of them."""


class Workers:
    """A thread pool, and a thread for large bodies, that coroutines use."""

    def __init__(self, threads: int) -> None:
        """At most `threads` threads, and one for large bodies, which start on demand."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._large = ThreadPoolExecutor(1, thread_name_prefix="large-bodies")

    async def run(self, work: Callable[[], ResultT], *, body_bytes: int = 0) -> ResultT:
        """Run `work`, which reads a body of this size, in a thread; returns its result or raises its exception."""
        pool = self._large if body_bytes > LARGE_BYTES else self._pool
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def close(self) -> None:
        """Wait for running work and cancel the work that has not started."""
        for pool in (self._pool, self._large):
            pool.shutdown(wait=True, cancel_futures=True)
