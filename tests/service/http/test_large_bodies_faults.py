from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from tests.service.large import LARGE, READING, process_of, read, with_bodies

from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http import large_bodies
from cerberank_service.http.large_bodies import LargeBodies
from cerberank_service.http.large_body import LargeBody
from cerberank_service.ranking.read import Read, Reader


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
        while not (bodies._process is None or bodies._process.ended()):
            await asyncio.sleep(0.01)
        return caught.value, after, await read(bodies)

    error, *others = with_bodies(work)
    assert error.kind is Kind.UNAVAILABLE
    assert error.retry_after == 1
    assert not any(isinstance(each.outcome, ServiceError) for each in others)


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
            await read(bodies, reading=Reader((), 10))
        before = process_of(bodies)
        again = await read(bodies)
        assert process_of(bodies) == before
        return again

    assert not isinstance(with_bodies(work).outcome, ServiceError)


def test_it_does_not_outlive_a_service_that_was_killed() -> None:
    """Nothing is left behind by kill -9."""
    program = (
        "import asyncio, os, signal\n"
        "from tests.service.large import LargeBodies, process_of, read\n"
        "async def main():\n"
        "    bodies = LargeBodies(total_bytes=0)\n"
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
