from __future__ import annotations

import asyncio
import threading

import pytest

from cerberank_service.ranking.workers import LARGE_BYTES, Workers


def test_an_exception_comes_back_to_the_caller() -> None:
    """The exception is raised in the caller, and the thread stays usable."""
    workers = Workers(1)

    def fail() -> None:
        raise KeyError("lost")

    async def ask() -> int:
        with pytest.raises(KeyError, match="lost"):
            await workers.run(fail)
        return await workers.run(lambda: 7)

    assert asyncio.run(ask()) == 7
    workers.close()


def test_small_bodies_do_not_wait_behind_large_ones() -> None:
    """Large bodies are read one after the other, by a thread that takes no small ones' place."""
    workers = Workers(1)
    gate = threading.Event()

    async def ask() -> list[str]:
        ended: list[str] = []

        async def read(name: str, size: int) -> None:
            await workers.run(gate.wait if size > LARGE_BYTES else lambda: None, body_bytes=size)
            ended.append(name)
            gate.set()

        await asyncio.gather(*(read(f"large {number}", LARGE_BYTES + 1) for number in range(3)), read("small", 100))
        return ended

    assert asyncio.run(ask()) == ["small", "large 0", "large 1", "large 2"]
    workers.close()
