from __future__ import annotations

import asyncio
import threading

import pytest

from cerberank_service.errors import Refusal, ServiceError
from cerberank_service.ranking.workers import LARGE_BYTES, Workers


def test_an_exception_comes_back_to_the_caller() -> None:
    """The exception is raised in the caller, and the thread stays usable."""
    workers = Workers(1, large_seconds=60.0)

    def fail() -> None:
        raise KeyError("lost")

    async def ask() -> int:
        with pytest.raises(KeyError, match="lost"):
            await workers.run(fail)
        return await workers.run(lambda: 7)

    assert asyncio.run(ask()) == 7
    workers.close()


def test_small_bodies_do_not_wait_behind_large_ones() -> None:
    """Large bodies are read one after the other, the smallest first, by a thread that takes no small ones' place."""
    workers = Workers(1, large_seconds=60.0)
    gate = threading.Event()

    async def ask() -> list[str]:
        ended: list[str] = []

        async def read(name: str, size: int) -> None:
            await workers.run(gate.wait if size > LARGE_BYTES else lambda: None, body_bytes=size)
            ended.append(name)
            gate.set()

        large = [read(f"{megabytes} MB", megabytes * 10**6) for megabytes in (4, 3, 3, 1)]
        await asyncio.gather(*large, read("small", 100))
        return ended

    assert asyncio.run(ask()) == ["small", "4 MB", "1 MB", "3 MB", "3 MB"]
    workers.close()


@pytest.mark.parametrize("leaves", ["cancelled", "too late"])
def test_a_large_body_that_no_longer_waits_gives_its_turn_to_the_next(leaves: str) -> None:
    """One whose client has gone, and one that has waited too long, which is told so and to come again."""
    workers = Workers(1, large_seconds=0.05 if leaves == "too late" else 60.0)
    begun, gate = threading.Event(), threading.Event()

    def held() -> None:
        begun.set()
        gate.wait()

    async def ask() -> None:
        reading = asyncio.create_task(workers.run(held, body_bytes=LARGE_BYTES + 1))
        await asyncio.to_thread(begun.wait)
        waiting = asyncio.create_task(workers.run(lambda: None, body_bytes=LARGE_BYTES + 1))
        await asyncio.sleep(0)
        if leaves == "cancelled":
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
        else:
            with pytest.raises(ServiceError) as refused:
                await waiting
            assert (refused.value.retry_after, refused.value.refusal) == (2, Refusal("queue"))
        gate.set()
        await reading
        assert await workers.run(lambda: 7, body_bytes=LARGE_BYTES + 1) == 7

    asyncio.run(asyncio.wait_for(ask(), 30))
    workers.close()


def test_a_turn_that_comes_as_its_body_gives_up_is_not_lost() -> None:
    """The reader ends and the client goes in the same step of the event loop."""
    workers = Workers(1, large_seconds=60.0)
    gate = threading.Event()

    async def ask() -> int:
        async def read() -> None:
            await workers.run(gate.wait, body_bytes=LARGE_BYTES + 1)
            waiting.cancel()

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        waiting = asyncio.create_task(workers.run(lambda: None, body_bytes=LARGE_BYTES + 1))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.wait([reading, waiting])
        assert waiting.cancelled()
        return await workers.run(lambda: 7, body_bytes=LARGE_BYTES + 1)

    assert asyncio.run(asyncio.wait_for(ask(), 30)) == 7
    workers.close()
