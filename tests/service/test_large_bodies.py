from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest
from fastapi.testclient import TestClient

from cerberank_service import large_bodies
from cerberank_service.dialects import NATIVE
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.large_bodies import NICENESS, LargeBodies
from cerberank_service.large_body import LARGE_BYTES, LargeBody
from cerberank_service.reading import Read, Reading

READING = Reading((NATIVE,), 10)
LARGE = json.dumps({"question": "q", "candidates": ["a", "b" * LARGE_BYTES]}).encode()
ResultT = TypeVar("ResultT")


def with_bodies(work: Callable[[LargeBodies], Awaitable[ResultT]], *, together: int = 10 * len(LARGE)) -> ResultT:
    async def run() -> ResultT:
        bodies = LargeBodies(together=together)
        try:
            return await work(bodies)
        finally:
            bodies.close()

    return asyncio.run(run())


async def read(bodies: LargeBodies, body: bytes = LARGE, reading: Reading = READING) -> Read:
    """As a route does: the body is closed as soon as its client leaves."""
    with closing(LargeBody()) as large:
        large.write(body)
        return await bodies.read(reading, large)


def process_of(bodies: LargeBodies) -> int:
    assert bodies._reader is not None
    return bodies._reader._process.pid


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def test_it_reads_what_this_process_would_read() -> None:
    """Calls and errors alike; an error is compared by what a client sees of it."""
    sent = (LARGE, LARGE[:-1], b"[" * LARGE_BYTES)

    def shown(read: Read) -> object:
        return (read.made.kind, read.made.message) if isinstance(read.made, ServiceError) else read

    async def work(bodies: LargeBodies) -> list[Read]:
        return [await read(bodies, body) for body in sent]

    assert [shown(read) for read in with_bodies(work)] == [shown(READING(body)) for body in sent]


def test_one_process_of_a_lower_priority_reads_all_and_ends_with_the_service() -> None:
    """Steps of the model go before it."""

    async def work(bodies: LargeBodies) -> int:
        bodies.start()
        await read(bodies)
        process = process_of(bodies)
        await asyncio.gather(*(read(bodies) for _ in range(2)))
        assert process_of(bodies) == process
        assert os.getpriority(os.PRIO_PROCESS, process) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
        return process

    with pytest.raises(ProcessLookupError):
        os.kill(with_bodies(work), 0)


def test_too_many_are_refused_and_one_is_always_read() -> None:
    """The bound is of bytes that wait; what has been read makes room."""

    async def work(bodies: LargeBodies) -> list[Read | BaseException]:
        first = await asyncio.gather(*(read(bodies) for _ in range(3)), return_exceptions=True)
        return [*first, await read(bodies)]

    one, two, three, later = with_bodies(work, together=len(LARGE))
    assert isinstance(one, Read)
    assert isinstance(later, Read)
    for refused in (two, three):
        assert isinstance(refused, ServiceError)
        assert refused.kind is Kind.UNAVAILABLE
        assert refused.retry_after == 2


def test_clients_that_leave_make_no_room_before_their_body_is_done() -> None:
    """One that is being read counts to its end; one that waits is gone with its client."""

    async def work(bodies: LargeBodies) -> list[int]:
        await read(bodies)
        descriptors = open_descriptors()
        os.kill(process_of(bodies), signal.SIGSTOP)
        tasks = [asyncio.create_task(read(bodies)) for _ in range(3)]
        await asyncio.sleep(0.05)
        held = [bodies._held]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        held.append(bodies._held)
        os.kill(process_of(bodies), signal.SIGCONT)
        assert isinstance(await read(bodies), Read)
        assert open_descriptors() == descriptors
        return [*held, bodies._held]

    assert with_bodies(work) == [3 * len(LARGE), len(LARGE), 0]


def test_one_that_ends_under_a_body_is_replaced() -> None:
    """Whose body it was is told to come again; the next one is read by another process, as after a death in between."""

    async def work(bodies: LargeBodies) -> tuple[ServiceError, Read, Read]:
        await read(bodies)
        os.kill(process_of(bodies), signal.SIGSTOP)
        unlucky = asyncio.create_task(read(bodies))
        await asyncio.sleep(0.05)
        os.kill(process_of(bodies), signal.SIGKILL)
        with pytest.raises(ServiceError) as caught:
            await unlucky
        after = await read(bodies)
        os.kill(process_of(bodies), signal.SIGKILL)
        while not (bodies._reader is None or bodies._reader.ended()):
            await asyncio.sleep(0.01)
        return caught.value, after, await read(bodies)

    error, *others = with_bodies(work)
    assert error.kind is Kind.UNAVAILABLE
    assert error.retry_after == 1
    assert not any(isinstance(each.made, ServiceError) for each in others)


def test_one_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever, neither for his own body nor for another's."""

    async def work(bodies: LargeBodies) -> list[Read | BaseException]:
        await read(bodies)
        monkeypatch.setattr(large_bodies, "LONGEST_SECONDS", 0.1)
        os.kill(process_of(bodies), signal.SIGSTOP)
        hung = asyncio.create_task(read(bodies))
        await asyncio.sleep(0.05)
        monkeypatch.setattr(large_bodies, "LONGEST_SECONDS", 60.0)
        return await asyncio.gather(hung, read(bodies), return_exceptions=True)

    hung, next_one = with_bodies(work)
    assert isinstance(hung, ServiceError)
    assert isinstance(next_one, Read)


def test_a_shutdown_does_not_wait_for_one_that_hangs() -> None:
    """Whoever waits is answered."""

    async def work(bodies: LargeBodies) -> list[Read | BaseException]:
        await read(bodies)
        os.kill(process_of(bodies), signal.SIGSTOP)
        tasks = [asyncio.create_task(read(bodies)) for _ in range(2)]
        await asyncio.sleep(0.05)
        await asyncio.to_thread(bodies.close)
        return await asyncio.gather(*tasks, return_exceptions=True)

    for answer in with_bodies(work):
        assert isinstance(answer, ServiceError)
        assert answer.kind is Kind.UNAVAILABLE


def test_one_that_is_being_started_ends_with_the_service() -> None:
    """A service that ends as soon as it began leaves no process behind."""

    async def work(bodies: LargeBodies) -> LargeBodies:
        bodies.start()
        return bodies

    bodies = with_bodies(work)
    assert bodies._reader is None or bodies._reader.ended()


def test_signals_to_the_whole_group_leave_it_to_the_service() -> None:
    """A terminal or a supervisor sends them to both, and the service still has bodies to read."""

    async def work(bodies: LargeBodies) -> bool:
        await read(bodies)
        process = process_of(bodies)
        for sent in (signal.SIGINT, signal.SIGTERM):
            os.kill(process, sent)
        await read(bodies)
        return process_of(bodies) == process

    assert with_bodies(work)


def test_without_another_process_bodies_are_read_here(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a limit forbids one: slower for the others, and the log says so."""

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert with_bodies(read) == READING(LARGE)
    assert "no more processes" in caplog.text


@pytest.mark.parametrize("left", [0, 1])
def test_without_a_descriptor_a_body_is_told_to_come_again(left: int) -> None:
    """Neither this process nor the other one is at fault, and with one left all is well."""

    async def work(bodies: LargeBodies) -> Read | ServiceError:
        await read(bodies)
        process = process_of(bodies)
        with closing(LargeBody()) as large:
            large.write(LARGE)
            with descriptors(left):
                try:
                    outcome: Read | ServiceError = await bodies.read(READING, large)
                except ServiceError as error:
                    outcome = error
        await read(bodies)
        assert process_of(bodies) == process
        return outcome

    outcome = with_bodies(work)
    if left:
        assert isinstance(outcome, Read)
    else:
        assert isinstance(outcome, ServiceError)
        assert (outcome.kind, outcome.retry_after) == (Kind.UNAVAILABLE, 2)


@contextmanager
def descriptors(left: int) -> Iterator[None]:
    """So many can be opened while the block lasts."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 8, before[1]))
    filled = []
    try:
        with suppress(OSError):
            while True:
                filled.append(os.dup(0))
        for _ in range(left):
            os.close(filled.pop())
        yield
    finally:
        for each in filled:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_fails_in_it_is_an_error_of_this_process() -> None:
    """A fault of ours is told in the log with its traceback, and the next body is read by the same process."""

    async def work(bodies: LargeBodies) -> Read:
        with pytest.raises(RuntimeError, match="IndexError"):
            await read(bodies, reading=Reading((), 10))
        before = process_of(bodies)
        again = await read(bodies)
        assert process_of(bodies) == before
        return again

    assert not isinstance(with_bodies(work).made, ServiceError)


def test_it_does_not_outlive_a_service_that_was_killed() -> None:
    """Nothing is left behind by kill -9."""
    program = (
        "import asyncio, os, signal\n"
        "from tests.service.test_large_bodies import LargeBodies, process_of, read\n"
        "async def main():\n"
        "    bodies = LargeBodies(together=0)\n"
        "    await read(bodies)\n"
        "    print(process_of(bodies), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = int(done.stdout)
    until = time.monotonic() + 20.0
    while _runs(left):
        assert time.monotonic() < until
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """A dead one may wait for a parent that never asks."""
    try:
        os.kill(pid, 0)
        return not sys.platform.startswith("linux") or ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


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


def test_bodies_are_taken_in_slowly_while_anybody_is_answered(client: TestClient) -> None:
    """The service tells its bodies by the leases of its versions."""
    service = client.app.state.service  # type: ignore[attr-defined]
    seen = [service.bodies._busy()]
    with service.served.lease() as lease:
        lease.take(None, None, "q")
        seen.append(service.bodies._busy())
    assert [*seen, service.bodies._busy()] == [False, True, False]
