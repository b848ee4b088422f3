"""Threads that parse, tokenise and render, so that the event loop does none of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

ResultT = TypeVar("ResultT")


class Workers:
    """A pool of threads."""

    def __init__(self, threads: int) -> None:
        """Threads start when they are first needed."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run `work` in a thread; its exception is raised here."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Let running work end; start no more."""
        self._pool.shutdown(wait=True, cancel_futures=True)
