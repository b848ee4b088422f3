"""The thread pool that parses, tokenises and renders outside of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

ResultT = TypeVar("ResultT")


class Workers:
    """A thread pool that coroutines use."""

    def __init__(self, threads: int) -> None:
        """At most `threads` threads, which start on demand."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run `work` in a thread; returns its result or raises its exception."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for running work and cancel the work that has not started."""
        self._pool.shutdown(wait=True, cancel_futures=True)
