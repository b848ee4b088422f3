"""Runs the rows of a step through the model, and isolates questions that make the model raise an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerberank_models.backends.stage_contract import Backend, StageOutput
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.faults import DeviceFailedError, Fault, fault_of, text_of
from cerberank_service.engine.pending import Pending
from cerberank_service.engine.waiting_states import Rows
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.telemetry.metrics import VersionMetrics
from cerberank_service.telemetry.series import OUT_OF_MEMORY, RECOMPUTED_TOKENS

logger = logging.getLogger(__name__)


def failed() -> ServiceError:
    """The error of a question that made the model raise."""
    return ServiceError(Kind.INTERNAL, "the model failed on this request; other requests were not affected")


def not_a_number() -> ServiceError:
    """The error of a question with a score that is NaN or infinite."""
    return ServiceError(Kind.INTERNAL, "the model gave a score that is not a number for this request")


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one question in a batch."""

    question: Pending
    rows: Rows

    @property
    def tokens(self) -> int:
        """Tokens of these rows."""
        return int(self.question.work.pairs.lengths[self.rows].sum())


Result = tuple[Part, StageOutput[Any] | ServiceError]


class Runner:
    """Owns the model. All methods run in the engine's thread."""

    def __init__(
        self,
        backend: Backend[Any],
        *,
        step_tokens: int,
        speeds: StageSpeeds,
        metrics: VersionMetrics,
        clock: Callable[[], float],
    ) -> None:
        """`step_tokens` is the initial limit of a step."""
        self._backend = backend
        self._speeds = speeds
        self._metrics = metrics
        self._clock = clock
        self._limit = StepLimit(step_tokens)
        self.calls = 0
        """Number of model calls that have begun."""

    @property
    def step_tokens(self) -> int:
        """Tokens of the largest step that is expected to fit into memory."""
        return self._limit.tokens

    def run(self, stage: int, parts: list[Part]) -> Iterator[Result]:
        """Yield results for all parts; a part may be split into several results, each with some of its rows.

        A batch that raises is bisected by questions until the failing question is alone, so that k failing questions
        of n cost about k log n batches. A batch that does not fit into memory is bisected by rows.
        Raises DeviceFailedError when no later call can succeed.
        """
        tokens = sum(part.tokens for part in parts)
        outcome = self._attempt(stage, parts)
        # `_attempt` has dropped the error and its traceback, whose frames reference the failed batch's tensors, so that
        # a retry finds their memory free.
        if not isinstance(outcome, Fault):
            self._limit.fitted(tokens)
            yield from outcome
            return
        if outcome is Fault.MEMORY:
            self._metrics.child(OUT_OF_MEMORY).inc()
            self._limit.ran_out(tokens)
            self._free_memory()
            logger.warning("out of memory at %d tokens; the step limit is now %d tokens", tokens, self.step_tokens)
        smaller = _smaller(outcome, parts)
        if not smaller:
            yield parts[0], failed()
        for half in smaller:
            yield from self.run(stage, half)

    def _attempt(self, stage: int, parts: list[Part]) -> list[Result] | Fault:
        """The results of one batch, or the class of its error; keeps no reference to a failed batch."""
        try:
            output = self._run_together(stage, parts)
            return [
                (part, result if np.isfinite(result.scores).all() else not_a_number())
                for part, result in zip(parts, _split(output, parts, self._backend), strict=True)
            ]
        except Exception as error:  # libraries of backends raise any type; `faults` classifies the errors
            fault = fault_of(error)
            if fault is Fault.DEVICE:
                raise DeviceFailedError(text_of(error)) from error
            if _smaller(fault, parts):
                logger.warning("a batch of %d questions failed; retrying in halves", len(parts))
            else:
                logger.exception("a question of %d rows failed in stage %d", len(parts[0].rows), stage)
            error.with_traceback(None)  # in case that a log handler or other code keeps the error
            return fault

    def _free_memory(self) -> None:
        try:
            self._backend.free_memory()
        except Exception as error:  # as above
            if fault_of(error) is Fault.DEVICE:
                raise DeviceFailedError(text_of(error)) from error
            logger.warning("memory could not be freed before the retry: %s", error)

    def _run_together(self, stage: int, parts: list[Part]) -> StageOutput[Any]:
        states = [self._state_of(stage, part) for part in parts]
        return self._run(stage, self._backend.concat(states), parts)

    def _state_of(self, stage: int, part: Part) -> Any:
        """The input state of `stage` for these rows, in their order; evicted states are recomputed."""
        states, missing = part.question.waiting_states.find(part.rows, self._backend)
        if len(missing):
            state = self._backend.start(part.question.work.pairs.select(missing))
            again = Part(part.question, missing)
            for earlier in range(part.question.work.begins_at, stage):
                state = self._run(earlier, state, [again]).state
                self._metrics.child(RECOMPUTED_TOKENS, str(earlier)).inc(again.tokens)
            states.append((missing, state))
        rows = np.concatenate([rows for rows, _ in states])
        joined = self._backend.concat([state for _, state in states])
        if np.array_equal(rows, part.rows):
            return joined
        by_row = np.argsort(rows)
        return self._backend.select(joined, by_row[np.searchsorted(rows, part.rows, sorter=by_row)])

    def _run(self, stage: int, state: Any, parts: list[Part]) -> StageOutput[Any]:
        self.calls += 1
        before = self._clock()
        output = self._backend.run(state, stage)
        self._speeds.observe(stage, sum(part.tokens for part in parts), self._clock() - before)
        for part in parts:
            part.question.tokens_run += part.tokens
        return output


def _smaller(fault: Fault, parts: list[Part]) -> list[list[Part]]:
    """The two batches to run instead of a failed one; empty if it cannot be divided."""
    return _halve_rows(parts) if fault is Fault.MEMORY else _halve_questions(parts)


def _halve_rows(parts: list[Part]) -> list[list[Part]]:
    total = sum(len(part.rows) for part in parts)
    if total < 2:
        return []
    halves: list[list[Part]] = [[], []]
    room = total // 2
    for part in parts:
        cut = min(room, len(part.rows))
        room -= cut
        for half, rows in zip(halves, (part.rows[:cut], part.rows[cut:]), strict=True):
            if len(rows):
                half.append(Part(part.question, rows))
    return halves


def _halve_questions(parts: list[Part]) -> list[list[Part]]:
    middle = len(parts) // 2
    return [parts[:middle], parts[middle:]] if middle else []


def _split(output: StageOutput[Any], parts: list[Part], backend: Backend[Any]) -> Iterator[StageOutput[Any]]:
    """Split the output of a joint batch into one output for each part."""
    if len(parts) == 1:
        yield output
        return
    start = 0
    for part in parts:
        place = np.arange(start, start + len(part.rows))
        yield StageOutput(
            state=None if output.state is None else backend.select(output.state, place),
            scores=output.scores[place],
            head_scores=None if output.head_scores is None else output.head_scores[place],
            vectors=None if output.vectors is None else output.vectors[start : start + len(part.rows)],
        )
        start += len(part.rows)


LEAST_TOKENS = 128
"""The lowest limit of a step's tokens."""
CALM_STEPS = 32
"""Number of steps near the limit that must fit into memory before it is doubled again; for the first time."""
MOST_CALM_STEPS = 1024
"""The greatest number of such steps. A failed attempt costs about as much as one step."""


class StepLimit:
    """Tokens of the largest step that is expected to fit into memory.

    Memory may be short temporarily, because another process or version takes some of it, or permanently, because the
    setting is too large. The limit is halved when memory runs out, and doubled after many steps that fitted. Each time
    memory runs out, twice as many steps are required before the next doubling.
    """

    def __init__(self, most: int) -> None:
        """Start with the limit `most`, which is never exceeded."""
        self._most = self.tokens = most
        self._calm = 0
        self._needed = CALM_STEPS // 2

    def ran_out(self, tokens: int) -> None:
        """Record that memory ran out in a step of `tokens`."""
        self.tokens = min(self.tokens, max(LEAST_TOKENS, tokens // 2))
        self._calm = 0
        self._needed = min(MOST_CALM_STEPS, 2 * self._needed)

    def fitted(self, tokens: int) -> None:
        """Record a step of `tokens` that ran. Steps of at most half the limit are ignored: they prove too little."""
        if self.tokens == self._most or 2 * tokens <= self.tokens:
            return
        self._calm += 1
        if self._calm == self._needed:
            self.tokens = min(self._most, 2 * self.tokens)
            self._calm = 0
