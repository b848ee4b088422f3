"""One thread that owns the model and serves all questions; requests of many clients share its steps.

Every accepted question is answered exactly once: with its order, with an error that is its own, with
what is known at its deadline, or with 503 when the engine stops before it is done.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cerberank_models.backend import Backend, StageOutput
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.job import Job, Rows, split
from cerberank_service.metrics import EngineMetrics
from cerberank_service.scheduler import Scheduler, Step

logger = logging.getLogger(__name__)


def stopped() -> ServiceError:
    """For questions that come or remain after a stop."""
    return ServiceError(Kind.UNAVAILABLE, "the service is shutting down; ask another replica", retry_after=1)


def dead() -> ServiceError:
    """For questions that come or wait when the thread has failed."""
    return ServiceError(Kind.UNAVAILABLE, "the model's thread has failed; ask another replica", retry_after=5)


def failed() -> ServiceError:
    """For the question that made the model raise."""
    return ServiceError(Kind.INTERNAL, "the model failed on this request; other requests were not affected")


def not_a_number() -> ServiceError:
    """For the question whose scores cannot be ranked."""
    return ServiceError(Kind.INTERNAL, "the model gave a score that is not a number for this request")


class Engine:
    """Runs questions through the stages. `submit` may be called from any thread."""

    def __init__(
        self,
        backend: Backend[Any],
        *,
        step_tokens: int,
        metrics: EngineMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take over `backend`: after `start` only the engine's thread uses it."""
        self._backend, self._metrics, self._clock = backend, metrics, clock
        self._scheduler = Scheduler(step_tokens)
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._jobs: dict[int, Job] = {}
        self._lock = threading.Lock()
        self._accepting = True
        self._give_up_at: float | None = None
        self._numbers = 0
        self._queued_tokens = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs and takes questions."""
        return self._thread.is_alive() and self._accepting

    @property
    def queued_tokens(self) -> int:
        """Tokens of accepted questions that are not answered yet."""
        return self._queued_tokens

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Accept a question. Raises ServiceError (503) when the engine has stopped or failed."""
        with self._lock:  # a question is either refused here or seen by the thread before it ends
            if not self._accepting:
                raise stopped() if self._give_up_at is not None else dead()
            self._queued_tokens += job.pairs.tokens
            self._inbox.put(job)

    def stop(self, drain_seconds: float) -> None:
        """Refuse new questions; what was accepted has `drain_seconds` to be answered. Does not wait."""
        with self._lock:
            if self._give_up_at is None:
                self._give_up_at = self._clock() + drain_seconds
                self._accepting = False
                self._inbox.put(None)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread to end, at most `timeout` seconds."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        error = stopped
        try:
            while self._receive():
                self._expire()
                step = self._scheduler.next_step()
                if step is not None:
                    self._execute(step)
        except Exception:
            logger.exception("the engine failed; every waiting request is answered with an error")
            error = dead
        finally:
            with self._lock:
                self._accepting = False
            while not self._inbox.empty():
                self._admit(self._inbox.get())
            for key in list(self._jobs):
                self._resolve(key, error())

    def _receive(self) -> bool:
        """Take in new questions, waiting when there is nothing to do; False when it is time to end."""
        while not self._inbox.empty() or (not self._jobs and self._give_up_at is None):
            self._admit(self._inbox.get())
        if self._give_up_at is None:
            return True
        return bool(self._jobs) and self._clock() < self._give_up_at

    def _admit(self, job: Job | None) -> None:
        if job is None:
            return
        key, self._numbers = self._numbers, self._numbers + 1
        self._jobs[key] = job
        self._scheduler.add(key, job.pairs.lengths)

    def _expire(self) -> None:
        """Answer questions whose deadline has passed, once the first stage has given them an order."""
        now = self._clock()
        for key, job in list(self._jobs.items()):
            if job.deadline is not None and now >= job.deadline and job.stage_complete:
                self._resolve(key, job.ranked(now=now, complete=False))

    def _execute(self, step: Step) -> None:
        now = self._clock()
        for key, _ in step.parts:
            if self._jobs[key].started is None:
                self._jobs[key].started = now
        outputs = self._outputs(step)
        self._scheduler.done(step)
        self._metrics.step(step.stage, tokens=step.tokens, seconds=self._clock() - now, backend=self._backend)
        for (key, rows), output in zip(step.parts, outputs, strict=True):
            if isinstance(output, ServiceError):
                self._resolve(key, output)
            else:
                self._record(key, rows, output)

    def _outputs(self, step: Step) -> list[StageOutput[Any] | ServiceError]:
        """Run the step as one batch; when that raises, question by question, to find the guilty ones."""
        try:
            return list(self._run_parts(step))
        except Exception:
            if len(step.parts) == 1:
                logger.exception("a question of %d rows failed in stage %d", len(step.parts[0][1]), step.stage)
                return [failed()]
            logger.warning("a batch of %d questions failed; running them one by one", len(step.parts))
        return [self._outputs(Step(step.stage, (part,), step.tokens))[0] for part in step.parts]

    def _run_parts(self, step: Step) -> list[StageOutput[Any]]:
        states = [self._jobs[key].state_of(self._backend, rows) for key, rows in step.parts]
        output = self._backend.run(self._backend.concat(states), step.stage)
        return split(output, [len(rows) for _, rows in step.parts], self._backend)

    def _record(self, key: int, rows: Rows, output: StageOutput[Any]) -> None:
        job = self._jobs[key]
        if not np.isfinite(output.scores).all():
            self._resolve(key, not_a_number())
            return
        job.record(rows, output)
        if not self._scheduler.finished_stage(key):
            return
        stage, last = job.stage, job.stage == len(self._backend.config.stages) - 1
        dropped = job.finish_stage(last)
        self._metrics.stage_done(stage, dropped=dropped)
        if last:
            self._resolve(key, job.ranked(now=self._clock(), complete=True))
        else:
            self._scheduler.advance(key, job.alive, job.pairs.lengths[job.alive])

    def _resolve(self, key: int, outcome: Any) -> None:
        job = self._jobs.pop(key)
        self._scheduler.remove(key)
        with self._lock:
            self._queued_tokens -= job.pairs.tokens
        job.resolve(outcome)
