"""The worker threads, which parse, tokenise and render outside of the event loop.

Bodies wait for a thread in one queue with fair shares, in the order of the ends that the engine's `FairClock` gives
them: a body's weight is one, divided by the number of its caller's bodies that wait. So a short body overtakes longer
ones, however many callers sent them, shorter ones that arrive later do not keep a long one waiting for ever, and a
caller with many connections has one share. After a long body that overtook others, the one that has waited longest
follows. Work of questions that are already accepted, such as rendering an answer, goes first.

Long bodies leave threads free for shorter ones, because a body that is being read cannot be interrupted.

The time to read a body is unknown in advance (4 MB take 10 ms to seconds, depending on the texts and on the token
cache), so the wait is limited by time and not by a prediction.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Any, Generic, TypeVar

from cerberank_service.engine.fairness import FairClock
from cerberank_service.engine.work import stopped
from cerberank_service.errors import Kind, Refusal, ServiceError, panics_as_errors

ResultT = TypeVar("ResultT")

LONG_BYTES = 32 * 1024
"""Bodies beyond this size (about 150 candidates) are long. A shorter one takes at most 0.05 s of a processor."""
BORDERS = (LONG_BYTES, 8 * LONG_BYTES)
"""Bodies beyond the first of these sizes leave one thread free, bodies beyond the second one leave two."""


@dataclass(eq=False, slots=True)
class _Job(Generic[ResultT]):
    """Work that waits for a thread."""

    work: Callable[[], ResultT]
    size: int
    """Bytes of the body that is read; 0 for other work."""
    caller: str | None = None
    """None for work of accepted questions, which has no share."""
    end: float = -inf
    """The fair end."""
    outcome: Future[ResultT] = field(default_factory=Future)


class Workers:
    """The threads and their queue, for the coroutines of one event loop."""

    def __init__(self, threads: int, *, queue_seconds: float, on_read: Callable[[float], None]) -> None:
        """At most `threads` threads read long bodies at once; one further thread does the other work meanwhile.

        A body waits at most `queue_seconds`. `on_read` is called, in a worker, with the seconds that a body took.
        """
        self._queue_seconds = queue_seconds
        self._on_read = on_read
        self._changed = threading.Condition()
        self._waiting: dict[int, _Job[Any]] = {}
        """By number, in the order of arrival."""
        self._running = Counter[int]()
        """The number of running jobs of each size."""
        self._bodies = Counter[str]()
        """The number of waiting bodies of each caller."""
        self._numbers = count()
        self._clock = FairClock()
        self._closed = False
        self._overtook = False
        """True if the last long body was read before one that has waited longer."""
        self._threads = [
            threading.Thread(target=self._serve, name=f"worker-{number}", daemon=True) for number in range(threads + 1)
        ]

    def start(self) -> None:
        """Start all threads, so that none is missing later. Raises RuntimeError if the system has too few."""
        for thread in self._threads:
            thread.start()

    async def read(self, work: Callable[[], ResultT], *, size: int, caller: str = "") -> ResultT:
        """Run `work`, which reads a body of `size` bytes, in a thread; returns its result or raises its exception.

        A library's panic is raised as RuntimeError. Raises ServiceError (503) for a body that has waited too long.
        """
        return await self._outcome(_Job(work, size, caller), self._queue_seconds)

    async def run(self, work: Callable[[], ResultT], *, size: int = 0) -> ResultT:
        """Run work of the service or of an accepted question, whose body has `size` bytes, like `read`.

        It goes before bodies that wait, and is not refused.
        """
        return await self._outcome(_Job(work, size), None)

    async def _outcome(self, job: _Job[ResultT], seconds: float | None) -> ResultT:
        """The job's result; raises its error. A job that waits is removed after `seconds`, or if it is cancelled."""
        number, begins = self._enter(job)
        outcome = asyncio.wrap_future(job.outcome)
        loop = asyncio.get_running_loop()
        late = None if begins or seconds is None else loop.call_later(seconds, self._refuse, number)
        try:
            return await outcome
        finally:
            del job, outcome  # an error's traceback references this frame; the variables would close a cycle
            if late is not None:
                late.cancel()
            with self._changed:
                self._withdraw(number)

    def _enter(self, job: _Job[Any]) -> tuple[int, bool]:
        """Queue a job; returns its number, and True if a free thread begins it at once."""
        with self._changed:
            if self._closed:
                raise stopped()
            number, begins = next(self._numbers), not self._waiting and job.size <= self._room()
            if job.caller is not None:
                self._bodies[job.caller] += 1
                job.end = self._clock.enter(number, job.size, 1 / self._bodies[job.caller])
            self._waiting[number] = job
            self._changed.notify()
        return number, begins

    def _leave(self, number: int) -> _Job[Any] | None:
        """Remove a job from the queue; None if it is not there any more. The caller holds the lock."""
        job = self._waiting.pop(number, None)
        if job is not None and job.caller is not None:
            self._bodies[job.caller] -= 1
            if not self._bodies[job.caller]:
                del self._bodies[job.caller]
            if not self._bodies:
                self._clock.clear()
        return job

    def _withdraw(self, number: int) -> _Job[Any] | None:
        """Remove a job that is not to run, like `_leave`; a job that has begun keeps its share."""
        job = self._leave(number)
        if job is not None:
            self._clock.leave(number)
        return job

    def _refuse(self, number: int) -> None:
        with self._changed:
            job = self._withdraw(number)
        if job is not None:
            text = "too many bodies are waiting to be read; try again later"
            job.outcome.set_exception(ServiceError(Kind.UNAVAILABLE, text, retry_after=2, refusal=Refusal("queue")))

    def _room(self) -> float:
        """The largest size that a thread may begin now; -1 if all threads are busy. The caller holds the lock."""
        if self._running.total() == len(self._threads):
            return -1.0
        for spared, border in enumerate(BORDERS, start=1):
            larger = sum(jobs for size, jobs in self._running.items() if size > border)
            if larger >= max(1, len(self._threads) - spared):
                return border
        return inf

    def _serve(self) -> None:
        """Run jobs until the workers are closed."""
        while (job := self._next()) is not None:
            began = time.monotonic()
            _run(job.work, job.outcome)
            if job.size:
                self._on_read(time.monotonic() - began)
            with self._changed:
                self._running[job.size] -= 1
                self._running += Counter()  # removes sizes that no job has
            del job  # while the thread waits, it refers to no result

    def _next(self) -> _Job[Any] | None:
        """Wait for the next job that a thread may begin; None when the workers are closed."""
        with self._changed:
            while not self._closed:
                if (number := self._chosen()) is not None:
                    job = self._leave(number)
                    assert job is not None, "it waits"
                    self._running[job.size] += 1
                    return job
                self._changed.wait()
        return None

    def _chosen(self) -> int | None:
        """The number of the job to begin now; None if none waits that may begin. The caller holds the lock."""
        room = self._room()
        allowed = [number for number, job in self._waiting.items() if job.size <= room]
        if not allowed:
            return None
        number = min(allowed, key=lambda number: self._waiting[number].end)
        job = self._waiting[number]
        # After a long body that overtook others, the oldest long one follows.
        if job.caller is not None and job.size > LONG_BYTES:
            oldest = next(number for number in allowed if self._waiting[number].size > LONG_BYTES)
            if self._overtook:  # the oldest one leaves the clock as it is
                self._overtook = False
                self._clock.leave(oldest)
                return oldest
            self._overtook = number != oldest
        if job.caller is not None:
            self._clock.serve(job.size)
        return number

    def close(self) -> None:
        """Wait for running work and cancel the work that has not started."""
        with self._changed:
            self._closed = True
            for job in self._waiting.values():
                job.outcome.cancel()
            self._waiting.clear()
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()


def _run(work: Callable[[], Any], outcome: Future[Any]) -> None:
    """Set the outcome of work that was not cancelled while it waited."""
    if not outcome.set_running_or_notify_cancel():
        return
    try:
        result = panics_as_errors()(work)()
    except BaseException as error:
        outcome.set_exception(error)
        del work, outcome  # the error's traceback references this frame; the variables would close a cycle
    else:
        outcome.set_result(result)
