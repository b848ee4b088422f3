"""Threads that parse, tokenise and render, so that the event loop does none of it.

Each thread has an encoder of its own: tokenizers are not shared.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cerberank_models.checkpoint import Checkpoint
from cerberank_models.encoding import PairEncoder

ResultT = TypeVar("ResultT")


class Workers:
    """A pool of threads with one encoder a thread and checkpoint."""

    def __init__(self, threads: int) -> None:
        """Threads start when they are first needed."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._local = threading.local()

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run `work` in a thread; its exception is raised here."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def encoder(self, checkpoint: Checkpoint) -> PairEncoder:
        """The calling thread's encoder for `checkpoint`; made on first use."""
        held: tuple[Checkpoint, PairEncoder] | None = getattr(self._local, "held", None)
        if held is None or held[0] is not checkpoint:
            held = (checkpoint, checkpoint.encoder())
            self._local.held = held
        return held[1]

    def close(self) -> None:
        """Let running work end; start no more."""
        self._pool.shutdown(wait=True, cancel_futures=True)
