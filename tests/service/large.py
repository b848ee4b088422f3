"""Large bodies for tests, and how a route has them read."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import TypeVar

from cerberank_service.dialects import NATIVE
from cerberank_service.http.large_bodies import LargeBodies
from cerberank_service.http.large_body import LARGE_BYTES, LargeBody
from cerberank_service.ranking.read import Read, Reader

READING = Reader((NATIVE,), 10)
LARGE = json.dumps({"question": "q", "candidates": ["a", "b" * LARGE_BYTES]}).encode()
ResultT = TypeVar("ResultT")


def with_bodies(work: Callable[[LargeBodies], Awaitable[ResultT]], *, total_bytes: int = 10 * len(LARGE)) -> ResultT:
    async def run() -> ResultT:
        bodies = LargeBodies(total_bytes=total_bytes)
        try:
            return await work(bodies)
        finally:
            bodies.close()

    return asyncio.run(run())


async def read(bodies: LargeBodies, body: bytes = LARGE, reading: Reader = READING) -> Read:
    """As a route does: the body is closed as soon as its client leaves."""
    with closing(LargeBody()) as large:
        large.write(body)
        return await bodies.read(reading, large)


def process_of(bodies: LargeBodies) -> int:
    assert bodies._process is not None
    return bodies._process._process.pid


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))
