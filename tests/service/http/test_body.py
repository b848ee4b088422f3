from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import Request

from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.body import BYTES_PER_SECOND, UNCOUNTED_BYTES, Bodies
from cerberank_service.http.large_body import LARGE_BYTES, LargeBody, read_descriptor


async def read(bodies: Bodies, request: Request) -> bytes:
    """A small body."""
    async with bodies.received(request) as received:
        assert isinstance(received, bytes)
        return received


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
    """Whether or not its length is announced."""
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


@pytest.mark.parametrize("length", ["9" * 18, "9" * 5000])
def test_a_length_of_thousands_of_digits_is_only_too_large(length: str) -> None:
    """Python would refuse to read the number."""
    client = Client([b""], length=length)
    with pytest.raises(ServiceError) as caught:
        client.read(4)
    assert caught.value.kind is Kind.TOO_LARGE


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


def test_large_bodies_together_are_bounded_and_small_ones_come_through() -> None:
    """What would not fit is told to come back; when a large one is read, the next may come."""
    large = [b"x" * UNCOUNTED_BYTES, b"y" * 100]

    async def run() -> None:
        bodies = Bodies(limit=2 * UNCOUNTED_BYTES, seconds=20.0, total_bytes=150)
        first, hold = Client([*large, b"z" * 50]), asyncio.Event()

        async def slowly() -> dict[str, Any]:
            if len(first.pieces) == 1:
                await hold.wait()
            return await first.receive()

        reading = asyncio.ensure_future(read(bodies, Request({"type": "http", "headers": []}, slowly)))
        await asyncio.sleep(0.01)
        with pytest.raises(ServiceError) as caught:
            await read(bodies, Client(large).request())
        assert (caught.value.kind, caught.value.retry_after) == (Kind.UNAVAILABLE, 2)
        assert await read(bodies, Client([b"small"]).request()) == b"small"
        hold.set()
        assert len(await reading) == UNCOUNTED_BYTES + 150
        assert len(await read(bodies, Client(large).request())) == UNCOUNTED_BYTES + 100

    asyncio.run(run())


def test_a_large_body_comes_whole_and_is_closed_with_the_request() -> None:
    """The body is complete for any split into chunks, and is closed with the request."""
    pieces = [b"abc" * 100_000, b"", b"d" * LARGE_BYTES, b"e"]

    async def run() -> None:
        bodies = Bodies(limit=2 * LARGE_BYTES, seconds=20.0, total_bytes=2 * LARGE_BYTES)
        async with bodies.received(Client(pieces).request()) as large:
            assert isinstance(large, LargeBody)
            descriptor = large.descriptor()
            assert read_descriptor(descriptor) == b"".join(pieces)
            os.close(descriptor)
        with pytest.raises(ValueError, match="closed"):
            large.descriptor()

    asyncio.run(run())


@pytest.mark.parametrize("place", ["__init__", "write"])
def test_a_large_body_without_room_is_told_to_come_again(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor or no memory is left: no fault of the client's."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(LargeBody, place, full)
    with pytest.raises(ServiceError) as caught:
        asyncio.run(
            read(Bodies(limit=10**7, seconds=20.0, total_bytes=10**7), Client([b"a" * (LARGE_BYTES + 1)]).request())
        )
    assert (caught.value.kind, caught.value.retry_after) == (Kind.UNAVAILABLE, 2)


@pytest.mark.parametrize("busy", [True, False])
def test_a_large_body_is_taken_in_slowly_while_others_are_answered(busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies beyond a megabyte are slowed down only while requests are being answered."""
    waited: list[float] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", note)

    async def run() -> None:
        bodies = Bodies(limit=4 * LARGE_BYTES, seconds=20.0, total_bytes=4 * LARGE_BYTES, busy=lambda: busy)
        async with bodies.received(Client([b"a" * LARGE_BYTES]).request()):
            assert not waited
        async with bodies.received(Client([b"a" * LARGE_BYTES, b"b", b"c" * LARGE_BYTES]).request()) as large:
            assert len(large) == 2 * LARGE_BYTES + 1

    asyncio.run(run())
    assert sum(waited) == pytest.approx((1 + LARGE_BYTES) / BYTES_PER_SECOND if busy else 0.0)
