from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import Request

from cerberank_service.body import read_body
from cerberank_service.errors import Kind, ServiceError


class Client:
    """Sends a body in pieces and counts how many were asked for."""

    def __init__(self, pieces: Sequence[bytes], *, length: int | None = None, leaves: bool = False) -> None:
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

    def read(self, limit: int) -> bytes:
        headers = [] if self.length is None else [(b"content-length", str(self.length).encode())]
        return asyncio.run(read_body(Request({"type": "http", "headers": headers}, self.receive), limit))


def test_a_body_up_to_the_limit_is_read_whole() -> None:
    """Whether or not its length is announced."""
    assert Client([b"ab", b"", b"cd"]).read(4) == b"abcd"
    assert Client([b"abcd"], length=4).read(4) == b"abcd"
    assert Client([b""]).read(4) == b""


def test_an_announced_length_beyond_the_limit_is_refused_unread() -> None:
    """Not one byte is taken in."""
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
