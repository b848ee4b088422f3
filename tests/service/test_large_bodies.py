from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from fastapi.testclient import TestClient

from cerberank_service import large_bodies
from cerberank_service.dialects import NATIVE
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.large_bodies import LARGE_BYTES, LargeBodies
from cerberank_service.leisure import step_forward
from cerberank_service.reading import Read, Reading

READING = Reading((NATIVE,), 10)
LARGE = json.dumps({"question": "q", "candidates": ["a", "b" * LARGE_BYTES]}).encode()
ResultT = TypeVar("ResultT")


def readers() -> set[int]:
    """Processes of this one that read bodies; the resource tracker is another."""
    pids = {int(pid) for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()}
    return {pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def with_bodies(work: Callable[[LargeBodies], Awaitable[ResultT]], *, together: int = 10 * len(LARGE)) -> ResultT:
    async def run() -> ResultT:
        bodies = LargeBodies(together=together)
        try:
            return await work(bodies)
        finally:
            bodies.close()

    return asyncio.run(run())


def test_it_reads_what_this_process_would_read() -> None:
    """Calls and errors alike; an error is compared by what a client sees of it."""
    bodies_sent = (LARGE, LARGE[:-1], b"[" * LARGE_BYTES)

    def shown(read: Read) -> object:
        return (read.made.kind, read.made.message) if isinstance(read.made, ServiceError) else read

    async def work(bodies: LargeBodies) -> list[Read]:
        return [await bodies.read(READING, body) for body in bodies_sent]

    assert [shown(read) for read in with_bodies(work)] == [shown(READING(body)) for body in bodies_sent]


def test_one_process_that_stands_back_reads_all_and_ends_with_the_service() -> None:
    """Steps of the model go before it, from its start on."""

    async def work(bodies: LargeBodies) -> list[int]:
        assert not readers()
        await asyncio.gather(*(bodies.read(READING, LARGE) for _ in range(3)))
        return [os.sched_getscheduler(pid) for pid in readers()]

    assert with_bodies(work) == [os.SCHED_IDLE]
    assert not readers()


def test_too_many_are_refused_and_one_is_always_read() -> None:
    """The bound is of bytes that wait; what has been read makes room."""

    async def work(bodies: LargeBodies) -> list[Read | BaseException]:
        first = await asyncio.gather(*(bodies.read(READING, LARGE) for _ in range(3)), return_exceptions=True)
        return [*first, await bodies.read(READING, LARGE)]

    one, two, three, later = with_bodies(work, together=len(LARGE))
    assert isinstance(one, Read)
    assert isinstance(later, Read)
    for refused in (two, three):
        assert isinstance(refused, ServiceError)
        assert refused.kind is Kind.UNAVAILABLE
        assert refused.retry_after == 2


def test_one_that_ends_under_a_body_is_replaced() -> None:
    """Whoever waited for it is told to come again, and the next body is read."""

    async def work(bodies: LargeBodies) -> tuple[ServiceError, Read]:
        await bodies.read(READING, LARGE)
        (reader,) = readers()
        os.kill(reader, signal.SIGKILL)
        with pytest.raises(ServiceError) as caught:
            await bodies.read(READING, LARGE)
        return caught.value, await bodies.read(READING, LARGE)

    error, read = with_bodies(work)
    assert error.kind is Kind.UNAVAILABLE
    assert error.retry_after == 1
    assert not isinstance(read.made, ServiceError)


def test_one_that_gets_no_time_steps_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while a large body is as urgent as any other, and the next one stands back again."""
    seen: list[int] = []
    monkeypatch.setattr(large_bodies, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(
        large_bodies, "step_forward", lambda pid: (step_forward(pid), seen.append(os.sched_getscheduler(pid)))
    )

    async def work(bodies: LargeBodies) -> list[int]:
        await bodies.read(READING, b" " * 20 * LARGE_BYTES + LARGE)
        return [os.sched_getscheduler(pid) for pid in readers()]

    assert with_bodies(work) == [os.SCHED_IDLE]
    assert seen == [os.SCHED_OTHER]


def test_what_fails_in_it_is_an_error_of_this_process() -> None:
    """A fault of ours is told in the log with its traceback, and the next body is read by the same process."""

    async def work(bodies: LargeBodies) -> Read:
        with pytest.raises(RuntimeError, match="IndexError"):
            await bodies.read(Reading((), 10), LARGE)
        before = readers()
        read = await bodies.read(READING, LARGE)
        assert readers() == before
        return read

    assert not isinstance(with_bodies(work).made, ServiceError)


def test_it_does_not_outlive_a_service_that_was_killed() -> None:
    """Nothing is left behind by kill -9."""
    program = (
        "import asyncio, os, signal\n"
        "from tests.service.test_large_bodies import LARGE, READING, LargeBodies, readers\n"
        "def main():\n"
        "    asyncio.run(LargeBodies(together=0).read(READING, LARGE))\n"
        "    print(*readers(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        "    main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = [int(pid) for pid in done.stdout.split()]
    assert left
    until = time.monotonic() + 20.0
    while any(Path(f"/proc/{pid}").exists() for pid in left):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_large_question_is_answered_as_a_small_one(client: TestClient) -> None:
    """Through the whole app; the blanks around change nothing but the size."""
    small = json.dumps({"question": "how tall ?", "candidates": ["a b", "c", "a b"]}).encode()
    answers = [client.post("/v1/rank", content=body).json() for body in (small, b" " * LARGE_BYTES + small)]
    assert answers[0]["results"] == answers[1]["results"]


def test_an_error_in_a_large_body_is_dressed_by_its_dialect(client: TestClient) -> None:
    """The error is made in the other process and answered by this one."""
    answer = client.post("/rerank", content=b'{"query": "q", "texts": 3}' + b" " * LARGE_BYTES)
    assert answer.status_code == 422
    assert set(answer.json()) == {"error", "error_type"}
