"""Receives request bodies with a limit on size and time for each, and a limit on memory for all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.large_body import LARGE_BYTES, LargeBody

UNCOUNTED_BYTES = 64 * 1024
"""First bytes of each body that do not count, so that large bodies cannot cause small requests to be refused."""
BYTES_PER_SECOND = 64e6
"""Rate at which a large body is received while requests are being answered, so that it does not occupy a processor."""
LONGEST_NUMBER = 18
"""Most digits of a `Content-Length` that is parsed; Python refuses numbers of thousands of digits."""


class Bodies:
    """The bodies that are being received. For one event loop."""

    def __init__(
        self, *, limit: int, seconds: float, total_bytes: int, busy: Callable[[], bool] = lambda: False
    ) -> None:
        """At most `limit` bytes and `seconds` for each body, and `total_bytes` for all, beyond `UNCOUNTED_BYTES` each.

        `busy` tells whether a request is being answered.
        """
        self._limit, self._seconds, self._total_bytes, self._busy = limit, seconds, total_bytes, busy
        self._held = 0

    @asynccontextmanager
    async def received(self, request: Request) -> AsyncIterator[bytes | LargeBody]:
        """The complete body; a large one is closed when the block ends. Raises ServiceError.

        The error is 413 as soon as more than the limit is announced or received, 408 for a body that takes too long,
        and 503 while too many large bodies are being received.
        """
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and (len(announced) > LONGEST_NUMBER or int(announced) > self._limit):
            raise self._too_large()
        incoming = _Incoming()
        try:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._receive(request, incoming)
            except ClientDisconnect as error:
                raise ServiceError(Kind.MALFORMED, "the connection ended before the body did") from error
            except TimeoutError as error:
                raise ServiceError(Kind.TIMEOUT, f"the body took longer than {self._seconds:g} seconds") from error
            except OSError as error:  # no file descriptor or no memory for a large body
                raise ServiceError(Kind.UNAVAILABLE, "no room for a large body", retry_after=2) from error
            yield incoming.body()
        finally:
            incoming.close()

    async def _receive(self, request: Request, incoming: _Incoming) -> None:
        mine = 0
        try:
            async for chunk in request.stream():
                size = incoming.size + len(chunk)
                if size > self._limit:
                    raise self._too_large()
                more = max(0, size - UNCOUNTED_BYTES) - mine
                if self._held + more > self._total_bytes:
                    raise ServiceError(Kind.UNAVAILABLE, "too many large bodies are on their way", retry_after=2)
                self._held, mine = self._held + more, mine + more
                incoming.add(chunk)
                if size > LARGE_BYTES and self._busy():
                    await asyncio.sleep(len(chunk) / BYTES_PER_SECOND)
        finally:
            self._held -= mine

    def _too_large(self) -> ServiceError:
        return ServiceError(
            Kind.TOO_LARGE, f"the body is larger than {self._limit} bytes; send fewer or shorter candidates"
        )


class _Incoming:
    """The chunks received so far; a large body goes to a file, because joining 16 MB holds the GIL for milliseconds."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0
        self._large: LargeBody | None = None

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        self._pieces.append(piece)
        if self.size > LARGE_BYTES:
            if self._large is None:
                self._large = LargeBody()
            for each in self._pieces:
                self._large.write(each)
            self._pieces.clear()

    def body(self) -> bytes | LargeBody:
        return b"".join(self._pieces) if self._large is None else self._large

    def close(self) -> None:
        if self._large is not None:
            self._large.close()
