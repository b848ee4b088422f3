from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from starlette.requests import Request

from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.body import UNCOUNTED_BYTES, Bodies, Body, read_number


async def read(bodies: Bodies, request: Request) -> bytes:
    """The whole body."""
    async with bodies.received(request) as received:
        return received.content


class Client:
    """Sends a body in pieces and counts how many were asked for."""

    def __init__(self, pieces: Sequence[bytes], *, length: int | str | None = None, leaves: bool = False) -> None:
        self.pieces, self.length, self.leaves = list(pieces), length, leaves
        self.asked = 0

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        if not self.pieces:
            assert self.leaves, "read on after the end"
            return {"type": "http.disconnect"}
        return {
            "type": "http.request",
            "body": self.pieces.pop(0),
            "more_body": bool(self.pieces) or self.leaves,
        }

    def request(self) -> Request:
        headers = [] if self.length is None else [(b"content-length", str(self.length).encode())]
        return Request({"type": "http", "headers": headers}, self.receive)

    def read(self, limit: int) -> bytes:
        return asyncio.run(read(Bodies(limit=limit, seconds=20.0, total_bytes=0), self.request()))


def test_a_body_up_to_the_limit_is_read_whole() -> None:
    """Its length may be announced or not."""
    assert Client([b"ab", b"", b"cd"]).read(4) == b"abcd"
    assert Client([b"abcd"], length=4).read(4) == b"abcd"
    assert Client([b""]).read(4) == b""


def test_an_announced_length_beyond_the_limit_is_refused_unread() -> None:
    """The body is refused by its Content-Length, before a byte is read."""
    client = Client([b"abcde"], length=5)
    with pytest.raises(ServiceError) as caught:
        client.read(4)
    assert caught.value.kind is Kind.TOO_LARGE
    assert client.asked == 0


@pytest.mark.parametrize("length", [None, 1])
def test_a_longer_body_is_cut_off_however_it_was_announced(length: int | None) -> None:
    """Reading ends with the piece that exceeds the limit."""
    client = Client([b"abc"] * 1000, length=length)
    with pytest.raises(ServiceError) as caught:
        client.read(4)
    assert caught.value.kind is Kind.TOO_LARGE
    assert "4 bytes" in caught.value.message
    assert client.asked == 2


def test_a_client_that_leaves_is_no_internal_error() -> None:
    """It hung up before the body was complete."""
    with pytest.raises(ServiceError) as caught:
        Client([b"ab"], leaves=True).read(4)
    assert caught.value.kind is Kind.MALFORMED


def test_a_body_that_does_not_come_is_waited_for_only_so_long() -> None:
    """408, and what it held is given back."""

    async def silence() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def run() -> None:
        bodies = Bodies(limit=10, seconds=0.01, total_bytes=0)
        with pytest.raises(ServiceError) as caught:
            await read(bodies, Request({"type": "http", "headers": []}, silence))
        assert caught.value.kind is Kind.TIMEOUT

    asyncio.run(run())


def test_large_bodies_are_held_until_they_are_answered_and_small_ones_come_through() -> None:
    """A body that would not fit is told to come back; when a large one is answered, the next may come."""
    large = [b"x" * UNCOUNTED_BYTES, b"y" * 100]

    async def run() -> None:
        bodies = Bodies(limit=2 * UNCOUNTED_BYTES, seconds=20.0, total_bytes=150)
        async with bodies.received(Client([*large, b"z" * 50]).request()) as held:
            assert len(held.content) == UNCOUNTED_BYTES + 150
            with pytest.raises(ServiceError) as caught:
                await read(bodies, Client(large).request())
            assert (caught.value.kind, caught.value.retry_after) == (Kind.UNAVAILABLE, 2)
            assert await read(bodies, Client([b"small"]).request()) == b"small"
        assert len(await read(bodies, Client(large).request())) == UNCOUNTED_BYTES + 100

    asyncio.run(run())


@pytest.mark.parametrize("end", ["answered", "failed", "too large", "left", "cancelled"])
def test_what_a_body_held_is_given_back_however_it_ends(end: str) -> None:
    """A second body of the full total size comes through afterwards."""
    total = [b"x" * (UNCOUNTED_BYTES + 100)]

    async def run() -> None:
        bodies = Bodies(limit=2 * UNCOUNTED_BYTES, seconds=20.0, total_bytes=100)
        if end in ("answered", "failed"):
            with suppress(RuntimeError):
                async with bodies.received(Client(total).request()):
                    if end == "failed":
                        raise RuntimeError
        elif end == "cancelled":
            first = Client(total, leaves=True)

            async def silence() -> dict[str, Any]:
                return await first.receive() if first.pieces else await asyncio.Event().wait()

            reading = asyncio.ensure_future(read(bodies, Request({"type": "http", "headers": []}, silence)))
            await asyncio.sleep(0.01)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        else:
            more = Client([*total, b"x" * UNCOUNTED_BYTES] if end == "too large" else total, leaves=end == "left")
            with pytest.raises(ServiceError):
                await read(bodies, more.request())
        assert await read(bodies, Client(total).request()) == total[0]

    asyncio.run(run())


def test_numbers_of_bytes_in_headers() -> None:
    """Only decimal numbers are read, and any number of digits is a number."""
    assert [read_number(text) for text in (None, "", "-1", "1.5", "\u0663", "12")] == [None, None, None, None, None, 12]
    assert (read_number("9" * 5000) or 0) > 10**17


def test_work_that_waits_for_a_thread_does_not_keep_the_body_of_a_client_that_left() -> None:
    """A body that is not counted any more is not held either."""

    async def run() -> Body:
        async with Bodies(limit=100, seconds=20.0, total_bytes=0).received(Client([b"abc"]).request()) as body:
            assert body.content == b"abc"
        return body

    assert asyncio.run(run()).content == b""


@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, identity"])
def test_a_compressed_body_is_named_as_one(encoding: str) -> None:
    """The message does not speak of JSON; `identity` is not a compression."""
    headers = [(b"content-encoding", encoding.encode())]
    bodies = Bodies(limit=9, seconds=20.0, total_bytes=0)
    with pytest.raises(ServiceError, match="compressed") as caught:
        asyncio.run(read(bodies, Request({"type": "http", "headers": headers}, Client([b"ab"]).receive)))
    assert caught.value.kind is Kind.MALFORMED
    plain = Request({"type": "http", "headers": [(b"content-encoding", b"Identity")]}, Client([b"ab"]).receive)
    assert asyncio.run(read(bodies, plain)) == b"ab"
