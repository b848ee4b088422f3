"""Parses large bodies in another process, because parsing JSON holds the GIL: 80 ms for 16 MB.

In this process every other request would wait for that time. A body that is refused costs other requests nothing. Of a
valid call, the texts (as far as the encoder reads them) and what the answer repeats are unpickled here, which holds the
GIL about as long as parsing that many candidates does.
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
"""Time limit for one body; a process that takes longer is killed."""
NICENESS = 10
"""The process has a lower priority than the engine: the candidates of a large body take far longer to score than to
parse."""


class LargeBodies:
    """A process that parses one body at a time. For one event loop."""

    def __init__(self, *, total_bytes: int) -> None:
        """At most `total_bytes` of bodies, or one larger body, may wait. The process starts on demand or by `start`."""
        self._total_bytes, self._held = total_bytes, 0
        self._reading = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-bodies")
        self._process: _Process | None = None
        self._closed = False

    def start(self) -> None:
        """Start the process, which takes half a second, before the first body arrives. Does not wait."""
        self._thread.submit(self._running)

    async def read(self, reader: Reader, body: LargeBody) -> Read:
        """Parse a body. Raises ServiceError (503) while too many bodies wait, and when the process ends meanwhile."""
        if self._held and self._held + len(body) > self._total_bytes:
            raise ServiceError(Kind.UNAVAILABLE, "too many large bodies wait to be read", retry_after=2)
        with ExitStack() as undo:
            # A duplicate: when the client disconnects, the body is closed and its descriptor may be reused.
            try:
                undo.callback(os.close, descriptor := body.descriptor())
            except OSError as error:
                raise ServiceError(Kind.UNAVAILABLE, "no room for a large body", retry_after=2) from error
            self._held += len(body)
            undo.callback(self._release, len(body))
            await self._reading.acquire()
            undo.callback(self._reading.release)
            try:
                future = asyncio.get_running_loop().run_in_executor(self._thread, self._read, reader, descriptor)
            except RuntimeError as error:
                raise ServiceError(Kind.UNAVAILABLE, "the service is shutting down", retry_after=1) from error
            done = undo.pop_all()
        future.add_done_callback(lambda future: _finish(future, done))
        return await asyncio.shield(future)  # after a disconnection it is still parsed to its end, and counted

    def close(self) -> None:
        """Kill the process; requests that wait for it get 503."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()
        self._thread.shutdown(wait=True)
        if self._process is not None:  # it was started meanwhile
            self._process.kill()

    def _release(self, size: int) -> None:
        self._held -= size

    def _running(self) -> _Process | None:
        if self._process is not None and self._process.ended():
            self._process.kill()
            self._process = None
        if self._process is None and not self._closed:
            try:
                self._process = _Process()
            except OSError as error:
                logger.warning("no process for large bodies, they are parsed in this one: %s", error)
        return self._process

    def _read(self, reader: Reader, descriptor: int) -> Read:
        if (process := self._running()) is None:
            return reader(read_descriptor(descriptor))
        try:
            outcome = process.read(reader, descriptor)
        except BaseException as error:  # a message may have been sent in part: the connection is unusable
            self._process = None
            code = process.kill()
            if not isinstance(error, EOFError | OSError):
                raise
            logger.warning("the process that parses large bodies has ended with exit code %d", code)
            message = "the process that reads large bodies has ended; the next one gets another"
            raise ServiceError(Kind.UNAVAILABLE, message, retry_after=1) from error
        if isinstance(outcome, str):
            raise RuntimeError(f"a large body could not be read: {outcome}")
        return outcome


def _finish(future: asyncio.Future[Read], done: ExitStack) -> None:
    done.close()
    if not future.cancelled():
        future.exception()  # retrieved, so that asyncio does not warn when the client has disconnected


class _Process:
    """The parent's side of the process. `multiprocessing` is not used: it would import the main module again."""

    def __init__(self) -> None:
        # One socket for messages and descriptors: a new socket for every body could exceed the descriptor limit.
        self._socket, there = socket.socketpair()
        command = [sys.executable, "-m", "cerberank_service.http.large_body_reader", str(there.fileno())]
        with there:  # only the child keeps this end open, so that each side notices when the other one ends
            try:
                self._connection: Connection = Connection(os.dup(self._socket.fileno()))
                self._process = subprocess.Popen(command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL)
            except BaseException:
                self._socket.close()
                raise
        os.setpriority(os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)

    def read(self, reader: Reader, descriptor: int) -> Read | str:
        """The parsed body, or a traceback of the child's error. Raises EOFError or OSError when the child has ended."""
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
        """Whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> int:
        """Kill the process and return its exit code. Thread-safe: a thread in `read` gets an error."""
        self._process.kill()
        self._socket.close()
        return self._process.wait()
