"""Reads large bodies in a process of its own: JSON is read in one piece that holds Python's lock, 80 ms for 16 MB.

In this process every other answer would wait for it.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from cerberank_service.errors import Kind, ServiceError
from cerberank_service.leisure import at_low_priority, stand_back, step_forward
from cerberank_service.memory import return_freed_memory, return_large_arrays
from cerberank_service.reading import Read, Reading

LARGE_BYTES = 512 * 1024
"""Below it the way there and back costs more than the reading."""
PATIENCE_SECONDS = 0.25
"""So long it takes only the processor time that nobody else wants: what is in a large body takes far longer to score
than to read. After that it is a process like any other, or under a full load it would never be done."""
JOIN_SECONDS = 1.0


class LargeBodies:
    """One process, started by the first large body, which waits a second for it. For one event loop."""

    def __init__(self, *, together: int) -> None:
        """At most `together` bytes of bodies wait, or one body."""
        self._together, self._held = together, 0
        self._turns = ThreadPoolExecutor(1, thread_name_prefix="large-bodies")
        self._reader: _Reader | None = None

    async def read(self, reading: Reading, body: bytes) -> Read:
        """Read a body. Raises ServiceError (503) while too many wait, and when the process ended under it."""
        if self._held and self._held + len(body) > self._together:
            raise ServiceError(Kind.UNAVAILABLE, "too many large bodies wait to be read", retry_after=2)
        self._held += len(body)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._turns, self._read, reading, body)
        finally:
            self._held -= len(body)

    def close(self) -> None:
        """End the process once it has read what it reads."""
        self._turns.shutdown(wait=True, cancel_futures=True)
        self._forget()

    def _read(self, reading: Reading, body: bytes) -> Read:
        if self._reader is None:
            self._reader = at_low_priority(_Reader)
        try:
            return self._reader.read(reading, body)
        except (EOFError, OSError) as error:
            self._forget()
            message = "the process that reads large bodies has ended; the next one gets another"
            raise ServiceError(Kind.UNAVAILABLE, message, retry_after=1) from error

    def _forget(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class _Reader:
    """This side of the process."""

    def __init__(self) -> None:
        # Never forked: other threads hold locks.
        context = get_context("spawn")
        self._connection, there = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_serve, args=(there,), daemon=True)
        self._process.start()
        there.close()  # the process holds the only one: its end is seen here, and ours there

    def read(self, reading: Reading, body: bytes) -> Read:
        """Raises EOFError or OSError when the process has ended, RuntimeError for what it failed with."""
        assert self._process.pid is not None
        hurry = threading.Timer(PATIENCE_SECONDS, step_forward, (self._process.pid,))
        hurry.start()
        try:
            self._connection.send(reading)
            self._connection.send_bytes(body)
            outcome: Read | str = self._connection.recv()
        finally:
            hurry.cancel()
            hurry.join()
            stand_back(self._process.pid)
        if isinstance(outcome, str):
            raise RuntimeError(f"a large body could not be read: {outcome}")
        return outcome

    def close(self) -> None:
        """It ends when it finds nobody at the other end."""
        self._connection.close()
        self._process.join(JOIN_SECONDS)
        self._process.kill()
        self._process.join()
        self._process.close()


def _serve(connection: Connection) -> None:
    """The other process: read bodies until nobody is left who sends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    return_large_arrays()
    while True:
        try:
            reading: Reading = connection.recv()
            body = connection.recv_bytes()
        except EOFError:
            return
        try:
            outcome: Read | str = reading(body)
        except Exception:  # told by the service's log, as any failure is
            outcome = traceback.format_exc()
        del body
        connection.send(outcome)
        del outcome
        return_freed_memory()
