"""Has large bodies read by another process: JSON is read in one piece that holds Python's lock, 80 ms for 16 MB.

In this process every other answer would wait for it. What is refused costs nobody else anything; of a call that is
good, what the encoder can read and what the answer repeats is taken in here, which holds the lock about as long as
reading so many candidates does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.reduction import sendfds

from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.large_body import LargeBody, read_descriptor
from cerberank_service.ranking.read import Read, Reader

logger = logging.getLogger(__name__)

LONGEST_SECONDS = 10.0
"""For one body; a process that takes longer is ended."""
NICENESS = 10
"""Steps of those who wait for answers go first: what is in a large body takes far longer to score than to read."""


class LargeBodies:
    """One process, which reads one body after the other. For one event loop."""

    def __init__(self, *, together: int) -> None:
        """At most `together` bytes of bodies wait, or one body. The process is started by `start` or by the first."""
        self._together, self._held = together, 0
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-bodies")
        self._process: _Process | None = None
        self._closed = False

    def start(self) -> None:
        """Begin to start the process, which takes it half a second, before there is a body."""
        self._thread.submit(self._running)

    async def read(self, reader: Reader, body: LargeBody) -> Read:
        """Read a body. Raises ServiceError (503) while too many wait, and when the process ended under it."""
        if self._held and self._held + len(body) > self._together:
            raise ServiceError(Kind.UNAVAILABLE, "too many large bodies wait to be read", retry_after=2)
        with ExitStack() as undo:
            # Its own: when the client leaves, the body is closed, and its number may soon be another file's.
            try:
                undo.callback(os.close, descriptor := body.descriptor())
            except OSError as error:
                raise ServiceError(Kind.UNAVAILABLE, "no room for a large body", retry_after=2) from error
            self._held += len(body)
            undo.callback(self._let_go, len(body))
            await self._turn.acquire()
            undo.callback(self._turn.release)
            try:
                future = asyncio.get_running_loop().run_in_executor(self._thread, self._read, reader, descriptor)
            except RuntimeError as error:
                raise ServiceError(Kind.UNAVAILABLE, "the service is shutting down", retry_after=1) from error
            done = undo.pop_all()
        future.add_done_callback(lambda future: _finish(future, done))
        return await asyncio.shield(future)  # whoever leaves, it is read to its end, and counts until then

    def close(self) -> None:
        """End the process; whoever waits for it gets 503."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()
        self._thread.shutdown(wait=True)
        if self._process is not None:  # it was being started meanwhile
            self._process.kill()

    def _let_go(self, size: int) -> None:
        self._held -= size

    def _running(self) -> _Process | None:
        if self._process is not None and self._process.ended():
            self._process.kill()
            self._process = None
        if self._process is None and not self._closed:
            try:
                self._process = _Process()
            except OSError as error:
                logger.warning("large bodies are read in this process, another one cannot be started: %s", error)
        return self._process

    def _read(self, reader: Reader, descriptor: int) -> Read:
        if (process := self._running()) is None:
            return reader(read_descriptor(descriptor))
        try:
            outcome = process.read(reader, descriptor)
        except BaseException as error:  # half a message may have gone: nothing after it would fit
            self._process = None
            code = process.kill()
            if not isinstance(error, EOFError | OSError):
                raise
            logger.warning("the process that reads large bodies has ended with %d", code)
            message = "the process that reads large bodies has ended; the next one gets another"
            raise ServiceError(Kind.UNAVAILABLE, message, retry_after=1) from error
        if isinstance(outcome, str):
            raise RuntimeError(f"a large body could not be read: {outcome}")
        return outcome


def _finish(future: asyncio.Future[Read], done: ExitStack) -> None:
    done.close()
    if not future.cancelled():
        future.exception()  # seen, though the client may have gone


class _Process:
    """This side of the process. Not `multiprocessing`'s: that would run the main module again in it."""

    def __init__(self) -> None:
        # Both for one end: a socket made for every body could be one descriptor too many.
        self._socket, there = socket.socketpair()
        command = [sys.executable, "-m", "cerberank_service.http.large_body_reader", str(there.fileno())]
        with there:  # the process holds the only one: its end is seen here, and ours there
            try:
                self._connection: Connection = Connection(os.dup(self._socket.fileno()))
                self._process = subprocess.Popen(command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL)
            except BaseException:
                self._socket.close()
                raise
        os.setpriority(os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)

    def read(self, reader: Reader, descriptor: int) -> Read | str:
        """What it read, or the traceback of what it failed with. Raises EOFError or OSError when it has ended."""
        clock = threading.Timer(LONGEST_SECONDS, self._process.kill)
        clock.start()
        try:
            self._connection.send(reader)
            sendfds(self._socket, [descriptor])
            outcome: Read | str = self._connection.recv()
        finally:
            clock.cancel()
        return outcome

    def ended(self) -> bool:
        """Whether it is there no longer, for whatever reason."""
        return self._process.poll() is not None

    def kill(self) -> int:
        """End it; returns its exit code. Any thread may do so: the one that reads sees its end."""
        self._process.kill()
        self._socket.close()
        return self._process.wait()
