"""Reads requests' bodies: each up to a limit and in time, all of them together within a bound of memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.large_body import LARGE_BYTES, LargeBody

FREE_BYTES = 64 * 1024
"""Of each body: usual requests come through, however many large bodies are on their way."""
BYTES_PER_SECOND = 64e6
"""Of each large body, while others are being answered: at full speed it would take a processor from them."""
LONGEST_NUMBER = 18
"""Digits; Python itself refuses to read numbers of thousands of them."""


class Bodies:
    """Those that are being received. For one event loop."""

    def __init__(self, *, limit: int, seconds: float, together: int, busy: Callable[[], bool] = lambda: False) -> None:
        """At most `limit` bytes and `seconds` for each, and `together` bytes for all that are not small.

        `busy` says whether somebody is being answered.
        """
        self._limit, self._seconds, self._together, self._busy = limit, seconds, together, busy
        self._held = 0

    @asynccontextmanager
    async def received(self, request: Request) -> AsyncIterator[bytes | LargeBody]:
        """The whole body, whatever `Content-Length` claims; a large one is closed with the block. Raises ServiceError.

        413 as soon as more than the limit is announced or has come, 408 for one that takes too long, 503 while too many
        large ones are on their way.
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
            except OSError as error:  # no descriptor or no memory for a large one
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
                more = max(0, size - FREE_BYTES) - mine
                if self._held + more > self._together:
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
    """The pieces that have come. Joining those of 16 MB would hold Python's lock for milliseconds."""

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
