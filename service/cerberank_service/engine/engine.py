"""The thread that owns the model and serves all questions; questions of many clients share its steps.

Every accepted question is answered exactly once: with its full order, with the best order known at its deadline, with
its own error, or with 503 when the engine stops before the question is done.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from cerberank_models.backends.stage_contract import Backend
from cerberank_service.engine.admission import MOST_TOKENS, Admission, Offer, retry_after, weight_of
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.faults import Fault, fault_of, text_of
from cerberank_service.engine.low_priority import LiveTraffic
from cerberank_service.engine.pending import Pending
from cerberank_service.engine.runner import LEAST_TOKENS, Part, Result, Runner
from cerberank_service.engine.scheduler import Scheduler, Step
from cerberank_service.engine.waiting_states import default_state_bytes
from cerberank_service.engine.work import Outcome, Ticket, Work, client_gone, dead, stopped, too_late
from cerberank_service.errors import ServiceError
from cerberank_service.telemetry.metrics import VersionMetrics
from cerberank_service.telemetry.series import CANCELLED_REQUESTS, FAILED_QUESTIONS, OFFERED_SECONDS, STATE_BYTES

logger = logging.getLogger(__name__)

SHORT_STEP_SECONDS = 0.015
"""Length of a step if all its questions yield to live traffic. Much shorter steps would have so much overhead that a
shadow version would look slower than it is."""


class Engine:
    """Runs questions through the stages. `submit` may be called from any thread."""

    def __init__(
        self,
        backend: Backend[Any],
        *,
        step_tokens: int,
        metrics: VersionMetrics,
        state_bytes: int | None = None,
        most_tokens: int = MOST_TOKENS,
        queue_seconds: float = inf,
        speeds: StageSpeeds | None = None,
        prepare_thread: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Own `backend`: after `start` only the engine's thread uses it.

        The thread calls `prepare_thread` before it takes questions, because libraries keep handles and workspaces for
        each thread, and making them would delay the first question.

        Hidden states that wait between steps take at most `state_bytes` (None: `default_state_bytes`). New questions
        are refused while pending ones have more than `most_tokens` tokens, or if they would wait longer than
        `queue_seconds`.
        """
        stage_layers = backend.config.scored_stage_layers
        self.speeds = speeds or StageSpeeds(stage_layers)
        self.speeds.step_tokens = step_tokens
        self._backend = backend
        self._prepare_thread = prepare_thread
        self._metrics = metrics
        self._clock = clock
        self._state_bytes = default_state_bytes(backend.device_memory) if state_bytes is None else state_bytes
        # What the engine's thread alone uses after `start`.
        self._scheduler = Scheduler(step_tokens, stage_layers)
        self._runner = Runner(backend, step_tokens=step_tokens, speeds=self.speeds, metrics=metrics, clock=clock)
        # What other threads reach too, by the queue or under the lock.
        self._admission = Admission(self.speeds, queue_seconds, most_tokens)
        self._inbox: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._questions: dict[int, Pending] = {}
        """The questions that the thread has received; no other thread uses them."""
        self._accepted: dict[int, Pending] = {}
        """The questions that are not answered yet. The thread that removes one, under the lock, answers it."""
        self._lock = threading.Lock()
        self._accepting = True
        self._given_up = False
        self._turns = 0
        """The number of questions that the thread has received and of turns of its loop."""
        self._step_seconds = 0.0
        """The predicted time of the running step, by which the watchdog judges how long it takes."""
        self._drain_deadline: float | None = None
        """The time at which accepted questions fail, on the engine's clock; None before `stop`."""
        self._next_key = 0
        self.device_failed = False
        """True once the thread has ended because its device failed; every other model on the device then fails too."""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._watchdog = Watchdog(self._thread)

    @property
    def alive(self) -> bool:
        """True while the thread runs, does not hang, and accepts questions."""
        return self._thread.is_alive() and self._accepting

    @property
    def running(self) -> bool:
        """True until the thread has ended, even if the engine accepts no more questions."""
        return self._thread.is_alive()

    @property
    def stalled_seconds(self) -> float:
        """Seconds for which accepted questions have waited without any progress."""
        return self._watchdog.seconds

    @property
    def step_tokens(self) -> int:
        """The current limit of the tokens of a step."""
        return self._runner.step_tokens

    @property
    def queued_tokens(self) -> int:
        """Tokens of accepted questions that are not answered yet."""
        return self._admission.tokens

    @property
    def queued_seconds(self) -> float:
        """Predicted seconds until all accepted questions are answered."""
        with self._lock:
            return self._admission.seconds

    def predict(self, stage_tokens: tuple[float, ...], priority: int) -> float:
        """Predicted seconds until a question with these tokens by stage would be answered, with its wait."""
        with self._lock:
            return self.speeds.alone(stage_tokens) + self._admission.wait(stage_tokens, weight_of(priority))

    def check_room(self) -> None:
        """Raises ServiceError (503) when even the smallest question would be refused."""
        with self._lock:
            self._admission.check_room()

    def start(self) -> None:
        """Start the thread, and one that watches it."""
        self._thread.start()
        self._watchdog.start(self._progress, lambda: self._step_seconds, self._give_up)

    def submit(self, work: Work, *, live_traffic: LiveTraffic | None = None) -> Ticket:
        """Accept a new question, or the next work of an accepted one (`Work.follows`).

        Between its works a question keeps its room in the backlog, until the next work or `cancel`. With `live_traffic`
        the work yields to clients' requests: its steps are short and start while no request is being answered.

        Raises ServiceError (503) when the engine has stopped or failed, and for a new question also when the backlog is
        too large for it (`Admission.check`).
        """
        with self._lock:  # a question is either refused here or received by the thread before it ends
            if not self._accepting:
                raise stopped() if self._drain_deadline is not None else dead()
            # A new question is checked; the next work of an accepted one takes the room of the work before it.
            offer = Offer(
                tokens=work.queued_tokens,
                stage_tokens=work.stage_tokens,
                weight=weight_of(work.priority),
                received=work.received,
                deadline=inf if work.deadline is None else work.deadline,
                request=work.request,
            )
            if work.follows is not None:
                self._admission.leave(work.follows)
            else:
                self._check(offer, work, is_load=live_traffic is None)
            ticket = Ticket(self._next_key, Future())
            self._next_key += 1
            ticket.outcome.set_running_or_notify_cancel()  # a caller that stops waiting cannot cancel it
            self._admission.enter(ticket.key, offer)
            question = Pending(
                work=work,
                key=ticket.key,
                outcome=ticket.outcome,
                submitted=self._clock(),
                live_traffic=live_traffic,
            )
            self._accepted[ticket.key] = question
            self._inbox.put(question)
            return ticket

    def _check(self, offer: Offer, work: Work, *, is_load: bool) -> None:
        """Raises ServiceError if the question is refused. If it `is_load`, its seconds are added to the metrics.

        A question is not load if its own deadline cannot be met: more replicas would not serve it in time either.
        """
        now = self._clock()
        try:
            self._admission.check(offer, now)
        except ServiceError as error:
            if error.refusal is not None:
                error.refusal = replace(error.refusal, candidates=work.pairs.candidates)
                is_load = is_load and error.refusal.reason != "deadline"
            if is_load:
                self._metrics.child(OFFERED_SECONDS, "refused").inc(self._admission.refused_load(offer, now))
            raise
        if is_load:
            self._metrics.child(OFFERED_SECONDS, "accepted").inc(self.speeds.shared(offer.stage_tokens))

    def cancel(self, key: int) -> None:
        """End a work whose client has disconnected.

        If the work is already done, free the room that is kept for the question's next work. This has no effect once
        the next work was submitted.
        """
        with self._lock:
            if (question := self._accepted.get(key)) is not None:
                question.cancelled = True
            else:
                self._admission.leave(key)

    def stop(self, drain_seconds: float) -> None:
        """Refuse new questions; fail the accepted ones after `drain_seconds`, which a second call may shorten."""
        with self._lock:
            self._drain_deadline = min(self._drain_deadline or inf, self._clock() + drain_seconds)
            self._accepting = False
            self._inbox.put(None)
        if drain_seconds <= 0.0:
            self._end(stopped)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread to end, at most `timeout` seconds."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        error = stopped
        try:
            self._prepare()
            while self._receive():
                self._turns += 1
                self._sweep()
                if (step := self._next_step()) is not None:
                    self._execute(step)
        except BaseException as failure:  # whatever ends the thread, every waiting question must get an answer
            self.device_failed = fault_of(failure) is Fault.DEVICE
            logger.exception("the engine failed; every waiting request is answered with an error")
            error = dead
        finally:
            self._end(error)

    def _prepare(self) -> None:
        try:
            self._prepare_thread()
        except Exception as error:  # libraries raise any type; the first question can do without
            if fault_of(error) is Fault.DEVICE:
                raise
            logger.warning("the engine's thread was not prepared: %s", text_of(error))

    def _end(self, error: Callable[[], ServiceError]) -> None:
        """Accept no more questions and answer all pending ones with `error`.

        Neither the scheduler nor the backend is used, because the engine's thread may hang in them.
        """
        with self._lock:
            self._accepting = False
            unanswered = list(self._accepted.values())
            self._accepted.clear()
            for question in unanswered:
                self._admission.leave(question.key)
        for question in unanswered:
            question.outcome.set_result(error())

    def _give_up(self, seconds: float) -> None:
        """End the engine without its thread, which hangs; the watchdog calls this."""
        logger.error("the engine has made no progress for %.0f seconds; it is given up", seconds)
        self._given_up = True
        self._end(dead)

    def count_failure(self) -> None:
        """Count a question of this version that ended in an internal error."""
        self._metrics.child(FAILED_QUESTIONS).inc()

    def _progress(self) -> int | None:
        """A count, for the watchdog, that rises with every turn of the thread and every model call; None if idle."""
        return self._turns + self._runner.calls if self._accepted else None

    def _receive(self) -> bool:
        """Receive new questions, and block while there is no work. Returns False when the thread should end."""
        if self._given_up:
            return False
        while not self._inbox.empty() or (not self._questions and self._drain_deadline is None):
            self._admit(self._inbox.get())
        return self._drain_deadline is None or (bool(self._questions) and self._clock() < self._drain_deadline)

    def _admit(self, question: Pending | None) -> None:
        if question is None:
            return
        self._turns += 1
        work, key = question.work, question.key
        self._questions[key] = question
        deadline = inf if work.deadline is None else work.deadline
        self._scheduler.add(key, work.own_tokens, weight=weight_of(work.priority), deadline=deadline)
        rows = np.arange(len(work.pairs), dtype=np.int64)
        self._scheduler.queue(key, work.begins_at, rows, question.lengths(rows))

    def _sweep(self) -> None:
        """Answer questions whose deadline has passed, and remove those whose client has disconnected.

        Called between steps.
        """
        now = self._clock()
        for question in list(self._questions.values()):
            if question.cancelled:
                self._metrics.child(CANCELLED_REQUESTS).inc()
                self._resolve(question, client_gone())
            elif question.work.deadline is not None and now >= question.work.deadline:
                if question.has_order:
                    self._resolve(question, question.ranked(now=now, complete=False))
                elif len(self._questions) > 1:  # the only question in the engine gets its first step even if it is late
                    self._resolve(question, too_late(retry_after(self.queued_seconds / 2)))

    def _next_step(self) -> Step | None:
        """The next step. If all questions yield to live traffic, wait until no request is answered; the step is short.

        The wait is bounded (`LiveTraffic.wait_until_idle`).
        """
        self._scheduler.step_tokens = self._runner.step_tokens
        traffic = [question.live_traffic for question in self._questions.values()]
        if traffic and (first := traffic[0]) is not None and None not in traffic:
            short = self.speeds.tokens_within(SHORT_STEP_SECONDS)
            self._scheduler.step_tokens = min(self._runner.step_tokens, max(LEAST_TOKENS, short))
            before = self._clock()
            first.wait_until_idle()
            for question in self._questions.values():
                question.yielded_seconds += 0.0 if question.started is None else self._clock() - before
        return self._scheduler.next_step()

    def _execute(self, step: Step) -> None:
        now = self._clock()
        parts = [Part(self._questions[key], rows) for key, rows in step.parts]
        for part in parts:
            if part.question.started is None:
                part.question.started = now
        self._step_seconds = self.speeds.step(step.stage, step.tokens)
        results = list(self._runner.run(step.stage, parts))
        self._metrics.step(step.stage, tokens=step.tokens, seconds=self._clock() - now, counts=self._backend.counts)
        self.speeds.step_tokens = self._runner.step_tokens
        self._metrics.speeds(self.speeds.seconds_per_token, self.speeds.step_tokens)
        for result in results:
            self._take_result(step, result)
        self._bound_states()

    def _take_result(self, step: Step, result: Result) -> None:
        part, output = result
        question, stage = part.question, step.stage
        if question.key not in self._questions:  # other rows of this question have failed
            return
        if isinstance(output, ServiceError):
            self._resolve(question, output)
            return
        with self._lock:
            self._admission.ran(question.key, stage, part.tokens)
        question.record(stage, part.rows, output, self._backend)
        rows = question.next_rows(stage, part.rows, self._backend)
        if question.done:
            self._resolve(question, question.ranked(now=self._clock(), complete=True))
        else:
            self._scheduler.queue(question.key, stage + 1, rows, question.lengths(rows))

    def _bound_states(self) -> None:
        """Evict hidden states while they exceed the limit, beginning with the question that holds most of them."""
        waiting = [question.waiting_states for question in self._questions.values()]
        while (total := sum(states.size for states in waiting)) > self._state_bytes:
            max(waiting, key=lambda states: states.size).evict()
        self._metrics.child(STATE_BYTES).set(total)

    def _resolve(self, question: Pending, outcome: Outcome) -> None:
        del self._questions[question.key]
        self._scheduler.remove(question.key, answered=question.done)
        with self._lock:
            if self._accepted.pop(question.key, None) is None:  # answered when the engine was given up
                return
            if question.cancelled or not (question.done and question.work.later_tokens):
                self._admission.leave(question.key)
        wasted = question.tokens_run if isinstance(outcome, ServiceError) else 0
        self._metrics.question_done(question.dropped, wasted=wasted)
        question.outcome.set_result(outcome)


LEAST_SECONDS = 30.0
"""The shortest pause after which an engine is given up."""
SLOWNESS = 20.0
"""Factor by which a step may exceed its predicted time before the engine is given up."""
TICK_SECONDS = 1.0
"""Seconds between two checks of the watchdog."""


class Pause:
    """Measures for how long an engine has had questions without making progress; the caller passes the time."""

    def __init__(self) -> None:
        """No progress has been seen yet."""
        self.seconds = 0.0
        self._seen: int | None = None
        self._looked_at = 0.0

    def look(self, now: float, progress: int | None) -> None:
        """Compare `progress`, a count that changes with any progress (None without questions), with the last one.

        `now` is in seconds. The time since the last look counts as two ticks at most, because after a longer time the
        machine or the process, and so the engine, was suspended.
        """
        if progress is None or progress != self._seen:
            self.seconds = 0.0
        else:
            self.seconds += min(now - self._looked_at, 2 * TICK_SECONDS)
        self._seen = progress
        self._looked_at = now


class Watchdog:
    """A thread that notices when an engine makes no progress, for example because a model call does not end.

    Such a call cannot be interrupted, so the engine is given up: its questions are answered with an error, and its
    version no longer counts as alive. A call that holds the GIL stops the watchdog too; in that case liveness probes
    time out.
    """

    def __init__(self, watched: threading.Thread) -> None:
        """Nothing is watched before `start`."""
        self._watched = watched
        self._pause = Pause()

    @property
    def seconds(self) -> float:
        """Seconds without progress, as of the last tick; after an engine was given up, until its thread ends."""
        return self._pause.seconds if self._watched.is_alive() else 0.0

    def start(
        self, progress: Callable[[], int | None], predicted: Callable[[], float], give_up: Callable[[float], None]
    ) -> None:
        """Start to watch the engine's thread, which must be running.

        For `progress` see `Pause.look`. `predicted` returns the predicted seconds of the running step. `give_up` is
        called once, with the seconds of the pause. Only the watchdog's thread references these functions. If this
        object did, it would form a reference cycle with the engine, and an unloaded version would keep its memory
        until the garbage collector finds the cycle.
        """
        threading.Thread(target=self._run, args=(progress, predicted, give_up), name="watchdog", daemon=True).start()

    def _run(
        self, progress: Callable[[], int | None], predicted: Callable[[], float], give_up: Callable[[float], None]
    ) -> None:
        while self._watched.is_alive():
            self._pause.look(time.monotonic(), progress())
            if self._pause.seconds > max(LEAST_SECONDS, SLOWNESS * predicted()):
                give_up(self._pause.seconds)
                return
            self._watched.join(TICK_SECONDS)
