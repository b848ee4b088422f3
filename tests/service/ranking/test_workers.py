from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from cerberank_service.errors import Refusal, ServiceError
from cerberank_service.ranking.workers import BORDERS, LONG_BYTES, Workers

LONG, SHORT = LONG_BYTES + 1, LONG_BYTES


@contextmanager
def working(threads: int = 1, queue_seconds: float = 60.0, taken: list[float] | None = None) -> Iterator[Workers]:
    workers = Workers(threads, queue_seconds=queue_seconds, on_read=([] if taken is None else taken).append)
    workers.start()
    try:
        yield workers
    finally:
        workers.close()


class Held:
    """Work that runs until the block ends, one in each of some threads."""

    def __init__(self, workers: Workers, *sizes: int) -> None:
        self._workers, self._sizes = workers, sizes
        self._gate, self._begun = threading.Event(), threading.Semaphore(0)

    def _work(self) -> None:
        self._begun.release()
        self._gate.wait(30)

    async def __aenter__(self) -> Held:
        self.tasks = [asyncio.create_task(self._workers.read(self._work, size=size)) for size in self._sizes]
        for _ in self._sizes:
            assert await asyncio.to_thread(self._begun.acquire, timeout=30)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._gate.set()
        await asyncio.gather(*self.tasks)


async def order(workers: Workers, *bodies: tuple[str, int, str], held: tuple[int, ...]) -> list[str]:
    """The names of bodies (name, size, caller) in the order in which they are read after all have arrived."""
    ended: list[str] = []
    async with Held(workers, *held):
        reading = []
        for name, size, caller in bodies:
            reading.append(asyncio.create_task(workers.read(partial(ended.append, name), size=size, caller=caller)))
            await asyncio.sleep(0)
    await asyncio.gather(*reading)
    return ended


def test_an_exception_comes_back_to_the_caller() -> None:
    """The exception is raised in the caller, and the thread stays usable."""

    def fail() -> None:
        raise KeyError("lost")

    async def ask(workers: Workers) -> int:
        with pytest.raises(KeyError, match="lost"):
            await workers.run(fail)
        return await workers.run(lambda: 7)

    with working() as workers:
        assert asyncio.run(ask(workers)) == 7


def test_every_thread_is_there_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is started later, when the system might have none left; if one is missing, the start fails."""
    with working(3) as workers, monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", lambda thread: pytest.fail("a thread was started"))

        async def ask() -> None:
            await asyncio.gather(*(workers.run(lambda: None) for _ in range(20)))

        asyncio.run(ask())
    start, started = threading.Thread.start, []

    def second_fails(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", second_fails)
    with pytest.raises(RuntimeError, match="new thread"), working(3):
        pass


def test_a_short_body_waits_neither_for_long_ones_that_run_nor_for_those_that_wait() -> None:
    """With every thread that may read long bodies taken by one, and more of them in the queue."""

    async def ask(workers: Workers) -> int:
        async with Held(workers, LONG, LONG):
            waiting = [asyncio.create_task(workers.read(lambda: None, size=LONG)) for _ in range(9)]
            await asyncio.sleep(0)
            short = await asyncio.wait_for(workers.read(lambda: 7, size=SHORT), 30)
            assert not any(each.done() for each in waiting)
        await asyncio.gather(*waiting)
        return short

    with working(2) as workers:
        assert asyncio.run(ask(workers)) == 7


def test_shorter_bodies_overtake_longer_ones_but_not_for_ever() -> None:
    """Bodies of 3 MB keep one of 4 MB, and one of 700 MB, waiting for a few turns, however many of them come."""

    async def ask(workers: Workers, size: int) -> list[str]:
        ended: list[str] = []

        async def client(number: int) -> None:
            for _ in range(9):
                await workers.read(lambda: ended.append("short"), size=3_000_000, caller=str(number))

        async with Held(workers, LONG):
            looping = [asyncio.create_task(client(number)) for number in range(4)]
            await asyncio.sleep(0)
            longer = asyncio.create_task(workers.read(lambda: ended.append("long"), size=size, caller="x"))
            await asyncio.sleep(0)
        await asyncio.gather(longer, *looping)
        return ended

    with working() as workers:
        for size in (4_000_000, 700_000_000):
            assert 4 <= asyncio.run(ask(workers, size)).index("long") <= 12
        bodies = [("4 MB", 4_000_000, "a"), ("2 MB", 2_000_000, "b"), ("1 MB", 1_000_000, "c")]
        assert asyncio.run(order(workers, *bodies, held=(LONG,))) == ["1 MB", "4 MB", "2 MB"]


@pytest.mark.parametrize("before", [1, 16, 31])
def test_a_short_body_is_next_however_many_callers_have_longer_ones(before: int) -> None:
    """A body of 300 bytes that arrives after some of 32 callers' bodies of 31 KB, which leave no thread free."""

    async def ask(workers: Workers) -> list[str]:
        ended: list[str] = []
        gate, begun = threading.Event(), threading.Event()

        def read(name: str) -> None:
            ended.append(name)
            if len(ended) == before:
                begun.set()
                gate.wait(30)

        async with Held(workers, SHORT):  # the other thread reads all bodies
            async with Held(workers, SHORT):
                names = [f"{number}" for number in range(32)]
                bodies = [workers.read(partial(read, name), size=31 * 1024, caller=name) for name in names]
                reading = [asyncio.create_task(body) for body in bodies]
                await asyncio.sleep(0)
            assert await asyncio.to_thread(begun.wait, 30)
            reading.append(asyncio.create_task(workers.read(partial(read, "short"), size=300, caller="short")))
            await asyncio.sleep(0)
            gate.set()
            await asyncio.gather(*reading)
        return ended

    with working() as workers:
        ended = asyncio.run(ask(workers))
    assert len(ended) == 33
    assert ended.index("short") == before


@pytest.mark.parametrize("fresh", [False, True])
def test_bodies_of_many_callers_do_not_keep_a_longer_one_waiting_for_ever(fresh: bool) -> None:
    """Eight at a time send bodies of 30 KB, always the same callers or always new ones; 120 KB need four turns each."""

    async def ask(workers: Workers) -> int:
        ended: list[str] = []

        async def client(number: int) -> None:
            for turn in range(12):
                caller = f"{number}/{turn}" if fresh else f"{number}"
                await workers.read(lambda: ended.append("short"), size=30_000, caller=caller)

        async with Held(workers, SHORT):
            async with Held(workers, SHORT):
                looping = [asyncio.create_task(client(number)) for number in range(8)]
                longer = asyncio.create_task(workers.read(lambda: ended.append("long"), size=120_000, caller="long"))
                await asyncio.sleep(0)
            await asyncio.gather(longer, *looping)
        return ended.index("long")

    with working() as workers:
        assert 8 <= asyncio.run(ask(workers)) <= 48


@pytest.mark.parametrize(("threads", "largest"), [(1, 1), (2, 1), (3, 2)])
def test_long_bodies_leave_threads_to_shorter_ones(threads: int, largest: int) -> None:
    """Those of over 256 KB leave two, and those of over 32 KB one, if that is not all."""

    async def ask(workers: Workers) -> None:
        beside = (LONG,) * (threads - largest)
        async with Held(workers, *[BORDERS[1] + 1] * largest, *beside):
            waiting = [asyncio.create_task(workers.read(lambda: None, size=size)) for size in (BORDERS[1] + 1, LONG)]
            await workers.read(lambda: None, size=SHORT)
            assert not any(each.done() for each in waiting)
        await asyncio.gather(*waiting)

    with working(threads) as workers:
        asyncio.run(asyncio.wait_for(ask(workers), 60))


def test_a_caller_with_many_connections_has_one_share() -> None:
    """A caller's only body does not wait for all ten of another caller, if all have the same size."""
    many = [(f"{number}", 10**6, "many") for number in range(10)]
    with working() as workers:
        ended = asyncio.run(order(workers, *many, ("one", 10**6, "one"), held=(LONG,)))
        assert ended.index("one") <= 1
        assert sorted(ended) == sorted([name for name, *_ in many] + ["one"])


def test_accepted_work_goes_first_and_is_never_refused() -> None:
    """Also when it waits for longer than a body may; bodies that wait so long are told to come again."""

    async def ask(workers: Workers) -> list[str]:
        ended: list[str] = []
        async with Held(workers, SHORT, SHORT):
            body = asyncio.create_task(workers.read(lambda: ended.append("body"), size=1))
            await asyncio.sleep(0)
            answer = asyncio.create_task(workers.run(lambda: ended.append("answer")))
            with pytest.raises(ServiceError) as refused:
                await body
            assert (refused.value.retry_after, refused.value.refusal) == (2, Refusal("queue"))
            assert not answer.done()
        await answer
        return ended

    with working(queue_seconds=0.02) as workers:
        assert asyncio.run(ask(workers)) == ["answer"]
    with working(queue_seconds=1e-9) as workers:  # an idle service refuses none

        async def alone() -> int:
            return await workers.read(lambda: 7, size=LONG)

        assert asyncio.run(alone()) == 7


def test_a_body_whose_client_has_gone_is_not_read() -> None:
    """Nor does it keep its place: its caller's next body has the whole share, and a running one ends by itself."""

    async def ask(workers: Workers) -> list[str]:
        ended: list[str] = []
        async with Held(workers, LONG) as held:
            gone = [
                asyncio.create_task(workers.read(lambda: ended.append("gone"), size=LONG, caller="a")) for _ in range(2)
            ]
            await asyncio.sleep(0)
            for each in (*gone, *held.tasks):
                each.cancel()
                with suppress(asyncio.CancelledError):
                    await each
            held.tasks.clear()
            last = asyncio.create_task(workers.read(lambda: ended.append("last"), size=LONG, caller="a"))
            await asyncio.sleep(0)
            short = await workers.read(lambda: "short", size=SHORT)  # the thread that runs a long body is not free
            assert not last.done()
        await last
        return [*ended, short]

    with working() as workers:
        assert asyncio.run(ask(workers)) == ["last", "short"]


def test_the_seconds_of_bodies_are_counted_whatever_becomes_of_them() -> None:
    """Those of an error, and of a body whose client has gone; answers and other work are not counted."""
    taken: list[float] = []

    def fail() -> None:
        raise KeyError

    async def ask(workers: Workers) -> None:
        with suppress(KeyError):
            await workers.read(fail, size=10)
        await workers.run(lambda: None)
        await workers.run(lambda: None, size=LONG)

    with working(taken=taken) as workers:
        asyncio.run(ask(workers))
    assert len(taken) == 2
    assert min(taken) >= 0.0


def test_closed_workers_take_no_work() -> None:
    """Waiting work is cancelled, running work ends, and later work is refused as in a shutdown."""

    async def ask(workers: Workers) -> None:
        held = Held(workers, LONG)
        await held.__aenter__()
        waiting = asyncio.create_task(workers.read(lambda: None, size=LONG))
        await asyncio.sleep(0)
        closing = threading.Thread(target=workers.close)
        closing.start()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        with pytest.raises(ServiceError, match="shutting down"):
            await workers.run(lambda: None)
        await held.__aexit__()
        closing.join(30)
        assert not closing.is_alive()

    with working() as workers:
        asyncio.run(asyncio.wait_for(ask(workers), 60))
