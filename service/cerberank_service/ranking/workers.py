"""The worker threads, which parse, tokenise and render outside of the event loop.

Bodies wait for a thread in one queue with fair shares (`engine/fairness.py`), in which a body costs its bytes. A short
body overtakes long ones, and no body waits for ever behind shorter ones that arrive later. The waiting bodies of one
caller divide one share among them, so that a caller with many connections hardly delays others. Long bodies leave one
thread free, so that a short body does not wait for a long one to end either. Work of questions that are already
accepted, such as rendering an answer, goes first.

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


@dataclass(eq=False, slots=True)
class _Job(Generic[ResultT]):
    """Work that waits for a thread."""

    work: Callable[[], ResultT]
    size: int
    """Bytes of the body that is read; 0 for other work."""
    caller: str | None = None
    """None for work of accepted questions, which has no share."""
    fair_end: float = -inf
    """The order in the queue."""
    outcome: Future[ResultT] = field(default_factory=Future)

    @property
    def long(self) -> bool:
        """True for a long body."""
        return self.size > LONG_BYTES


class Workers:
    """The threads and their queue, for the coroutines of one event loop."""

    def __init__(self, threads: int, *, queue_seconds: float, on_read: Callable[[float], None]) -> None:
        """At most `threads` threads read long bodies at once; one further thread does the other work meanwhile.

        A body waits at most `queue_seconds`. `on_read` is called, in a worker, with the seconds that a body took.
        """
        self._most_long, self._seconds, self._on_read = threads, queue_seconds, on_read
        self._changed = threading.Condition()
        self._waiting: dict[int, _Job[Any]] = {}
        self._bodies = Counter[str]()
        """The number of waiting bodies of each caller."""
        self._clock, self._numbers = FairClock(), count()
        self._busy = self._long = 0
        """The threads that run jobs, and those of them that run long ones."""
        self._closed = False
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
        return await self._ended(_Job(work, size, caller), self._seconds)

    async def run(self, work: Callable[[], ResultT], *, size: int = 0) -> ResultT:
        """Run work of the service or of an accepted question, whose body has `size` bytes, like `read`.

        It goes before bodies that wait, and is not refused.
        """
        return await self._ended(_Job(work, size), None)

    async def _ended(self, job: _Job[ResultT], seconds: float | None) -> ResultT:
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
                self._leave(number)

    def _enter(self, job: _Job[Any]) -> tuple[int, bool]:
        """Queue a job; returns its number, and True if a free thread begins it at once."""
        with self._changed:
            if self._closed:
                raise stopped()
            number, begins = next(self._numbers), not self._waiting and self._busy < len(self._threads)
            begins &= not job.long or self._long < self._most_long
            if job.caller is not None:
                self._bodies[job.caller] += 1
                job.fair_end = self._clock.enter(number, job.size, 1.0 / self._bodies[job.caller])
            self._waiting[number] = job
            self._changed.notify()
        return number, begins

    def _leave(self, number: int, *, begun: bool = False) -> _Job[Any] | None:
        """Remove a job from the queue, because a thread has `begun` it or because it is given up; None if it is gone.

        The caller holds the lock.
        """
        job = self._waiting.pop(number, None)
        if job is not None and job.caller is not None:
            self._bodies[job.caller] -= 1
            if not self._bodies[job.caller]:
                del self._bodies[job.caller]
            if begun:
                self._clock.serve(job.size)
            else:
                self._clock.leave(number)
            if not self._bodies:
                self._clock.clear()
        return job

    def _refuse(self, number: int) -> None:
        with self._changed:
            job = self._leave(number)
        if job is not None:
            text = "too many bodies are waiting to be read; try again later"
            job.outcome.set_exception(ServiceError(Kind.UNAVAILABLE, text, retry_after=2, refusal=Refusal("queue")))

    def _serve(self) -> None:
        """Run jobs until the workers are closed."""
        while (job := self._next()) is not None:
            began = time.monotonic()
            _run(job.work, job.outcome)
            if job.size:
                self._on_read(time.monotonic() - began)
            with self._changed:
                self._busy -= 1
                self._long -= job.long
            del job  # while the thread waits, it refers to no result

    def _next(self) -> _Job[Any] | None:
        """Wait for the next job that this thread may run; None when the workers are closed."""
        with self._changed:
            while not self._closed:
                room = self._long < self._most_long
                allowed = [(job.fair_end, number) for number, job in self._waiting.items() if room or not job.long]
                if allowed:
                    job = self._leave(min(allowed)[1], begun=True)
                    assert job is not None, "it waits"
                    self._busy += 1
                    self._long += job.long
                    return job
                self._changed.wait()
        return None

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


def _run(work: Callable[[], ResultT], outcome: Future[ResultT]) -> None:
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
