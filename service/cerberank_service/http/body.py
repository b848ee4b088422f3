"""Receives request bodies, with limits on the size and time of each body and on the memory of all bodies together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from cerberank_service.errors import Kind, Refusal, ServiceError

UNCOUNTED_BYTES = 64 * 1024
"""The first bytes of each body that do not count, so that small requests are accepted even if large bodies fill the
memory limit."""
LONGEST_NUMBER = 18
"""Digits beyond which a header's number is not parsed, because Python refuses to parse thousands of digits."""


@dataclass(slots=True)
class Body:
    """A request's body. It is emptied when the request ends, so that work waiting for a thread does not keep it."""

    content: bytes


class Bodies:
    """The bodies of all requests that are not answered yet. Used by one event loop only."""

    def __init__(self, *, limit: int, seconds: float, total_bytes: int) -> None:
        """A body has at most `limit` bytes and `seconds`; all counted bytes together are at most `total_bytes`.

        The first `UNCOUNTED_BYTES` of each body are not counted.
        """
        self._limit = limit
        self._seconds = seconds
        self._total_bytes = total_bytes
        self._held = 0

    @asynccontextmanager
    async def received(self, request: Request) -> AsyncIterator[Body]:
        """The complete body, which counts towards the total until the block ends.

        Raises ServiceError: 413 as soon as more bytes than the limit are announced or received, 408 for a body that
        takes too long, 503 while too many large bodies are held, 400 for a compressed or incomplete body.
        """
        announced = read_number(request.headers.get("content-length"))
        if announced is not None and announced > self._limit:
            raise self._too_large()
        pieces: list[bytes] = []
        body, size = Body(b""), 0
        try:
            try:
                async with asyncio.timeout(self._seconds):
                    async for piece in request.stream():
                        self._count(size, size + len(piece))
                        size += len(piece)
                        pieces.append(piece)
            except ClientDisconnect as error:
                raise ServiceError(Kind.MALFORMED, "the connection ended before the body did") from error
            except TimeoutError as error:
                raise ServiceError(Kind.TIMEOUT, f"the body took longer than {self._seconds:g} seconds") from error
            if request.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
                raise ServiceError(Kind.MALFORMED, "the body is compressed (Content-Encoding); send it uncompressed")
            body.content = b"".join(pieces)
            pieces.clear()
            yield body
        finally:
            body.content = b""
            self._held -= _counted(size)

    def _count(self, before: int, after: int) -> None:
        """Count the bytes by which a body has grown. Raises ServiceError, without counting, if a limit is exceeded."""
        if after > self._limit:
            raise self._too_large()
        more = _counted(after) - _counted(before)
        if self._held + more > self._total_bytes:
            text = "too many large bodies are being answered"
            raise ServiceError(Kind.UNAVAILABLE, text, retry_after=2, refusal=Refusal("memory"))
        self._held += more

    def _too_large(self) -> ServiceError:
        return ServiceError(
            Kind.TOO_LARGE,
            f"the body is larger than {self._limit} bytes; send fewer or shorter candidates, or raise "
            "CERBERANK_MAX_BODY_BYTES",
        )


def read_number(header: str | None) -> int | None:
    """The number of bytes that a header states; None without the header or if its value is not a decimal number.

    >>> read_number("12"), read_number("-1"), read_number("9" * 5000) > 10**17
    (12, None, True)
    """
    if header is None or not (header.isascii() and header.isdecimal()):
        return None
    return int(header) if len(header) <= LONGEST_NUMBER else 10**LONGEST_NUMBER


def _counted(size: int) -> int:
    """The counted bytes of a body of this size."""
    return max(0, size - UNCOUNTED_BYTES)
