"""The state of one question in the engine: its surviving candidates, their scores by stage, and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Backend, Scores, StageOutput, Vector
from cerberank_models.drop import UNSCORED, DropPolicy, Survival, order
from cerberank_models.encoding import EncodedPairs
from cerberank_service.engine.low_priority import LiveTraffic
from cerberank_service.engine.waiting_states import Rows, WaitingStates
from cerberank_service.errors import Kind, Refusal, ServiceError


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """The engine's result; arrays are by candidate."""

    order: Rows
    scores: Scores
    """NaN for candidates that no stage scored."""
    stages: Rows
    """The stage of each score; UNSCORED when the deadline came before any."""
    heads: Scores | None
    complete: bool
    queue_seconds: float
    compute_seconds: float
    vectors: Sequence[Vector | None] | None = None
    """What a first stage has computed, None for texts that it has not; only where the job ran one."""
    spans: Rows | None = None
    """Shape [n, 2]: each candidate's best window (`Windows.folded`); None where none was read in windows."""


Outcome = Ranked | ServiceError


def stopped() -> ServiceError:
    """The error of questions that arrive or remain after `Engine.stop`."""
    text = "the service is shutting down; ask another replica"
    return ServiceError(Kind.UNAVAILABLE, text, retry_after=1, refusal=Refusal("stopping"))


def dead() -> ServiceError:
    """The error of questions that arrive or wait when the engine's thread has failed or hangs."""
    text = "the model's thread has failed; ask another replica"
    return ServiceError(Kind.UNAVAILABLE, text, retry_after=5, refusal=Refusal("failed"))


def too_late(wait: int) -> ServiceError:
    """The error of a question whose deadline passed while it waited; `wait` are the seconds to come again after."""
    text = "the deadline passed before any candidate could be scored; try again later"
    return ServiceError(Kind.UNAVAILABLE, text, retry_after=wait, refusal=Refusal("deadline"))


def client_gone() -> ServiceError:
    """The outcome of a question whose client has disconnected; it is sent to nobody."""
    return ServiceError(Kind.UNAVAILABLE, "the client has gone")


def stage_tokens(pairs: EncodedPairs, policy: DropPolicy) -> tuple[float, ...]:
    """Expected tokens of each stage, on the assumption that survivors are of average length."""
    mean = pairs.tokens / pairs.candidates
    return tuple(alive * mean for alive in policy.expected_alive(pairs.candidates))


@dataclass(kw_only=True, slots=True)
class Job:
    """A question in the engine. After `submit` only the engine's thread changes it, except for `cancelled`."""

    pairs: EncodedPairs
    """Pairs, or the texts that a first stage reads."""
    policy: DropPolicy
    """Decides which candidates survive each of the job's stages, counted from 0; it also has their number."""
    first_stage: int = 0
    """The engine's stage that is the job's stage 0."""
    later_tokens: tuple[float, ...] = ()
    """Tokens that another job of the same question is expected to run in each stage after this job's."""
    follows: int | None = None
    """The key of an earlier job of the same question that was accepted, so that this one is not refused."""
    ordered: bool = False
    """Whether the caller has an order without this job, or once it has the row that `leads`: a deadline is no error."""
    leads: bool = False
    """Whether row 0 runs in the first step, because the other rows are worth nothing without it."""
    received: float
    """Time of the request's arrival, in seconds on the engine's clock."""
    submitted: float
    """Time of submission to the engine."""
    deadline: float | None
    resolve: Callable[[Outcome], None]
    """Called exactly once: from the engine's thread, or from the watchdog's when the engine is given up."""
    priority: int = 0
    """0 (the highest) to 999."""
    live_traffic: LiveTraffic | None = None
    """Set for a question that yields to live traffic: its steps are short, and each waits for an idle moment."""
    cancelled: bool = False
    """Set by any thread when the client has disconnected."""
    key: int = -1
    """The engine's identifier of the question."""
    started: float | None = None
    waited: float = 0.0
    """Seconds since `started` that were spent waiting for idle moments."""
    done: bool = False
    dropped: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of an engine's stage and the number of candidates that its exit dropped."""
    tokens_run: int = 0
    held: WaitingStates = field(init=False)
    trace: Scores = field(init=False)
    """Shape [n, stages]: the scores of every stage, NaN where a stage did not run."""
    heads: Scores | None = None
    vectors: list[Vector | None] | None = None
    _survival: Survival = field(init=False)
    own_tokens: tuple[float, ...] = field(init=False)
    """Expected tokens of each of the engine's stages."""
    stage_tokens: tuple[float, ...] = field(init=False)
    """The same with those that the question's later job is expected to run."""
    _last: int = field(init=False)
    """The last stage."""
    _waiting: int = field(init=False)
    """Number of rows that have not finished the current stage; its exit drops when none is left."""

    def __post_init__(self) -> None:
        """Start with all rows alive and none scored."""
        count = len(self.pairs)
        expected = stage_tokens(self.pairs, self.policy)
        stages = len(expected)
        self._last = stages - 1
        self._survival = Survival(count, stages, self.policy, self.pairs.windows)
        self.held = WaitingStates(self.pairs.lengths)
        self.trace = np.full((count, stages), np.nan)
        self._waiting = count
        own = (0.0,) * self.first_stage + expected
        self.own_tokens = own + (0.0,) * len(self.later_tokens)
        self.stage_tokens = own + self.later_tokens

    @property
    def queued_tokens(self) -> int:
        """Tokens that count as queued: its own, and those that enter the first stage of the question's later job."""
        return self.pairs.tokens + round(max(self.later_tokens, default=0.0))

    @property
    def has_order(self) -> bool:
        """Whether any candidate was scored, so that an order can be answered."""
        scored = ~np.isnan(self.trace[:, 0])
        if self.leads:
            return bool(scored[0] and (self.ordered or scored[1:].any()))
        return self.ordered or bool(scored.any())

    def lengths(self, rows: Rows) -> NDArray[np.int64]:
        """Tokens of `rows` for the scheduler, which runs longer rows first; a row that leads counts as the longest."""
        lengths = self.pairs.lengths
        if self.leads:
            lengths[0] = lengths.max()
        return lengths[rows]

    def record(self, engine_stage: int, rows: Rows, output: StageOutput[Any], backend: Backend[Any]) -> None:
        """Store the output of a stage for `rows`, aligned with them; release the stage's input states."""
        self.trace[rows, engine_stage - self.first_stage] = output.scores
        if output.vectors is not None:
            if self.vectors is None:
                self.vectors = [None] * len(self.pairs)
            for row, vector in zip(rows.tolist(), output.vectors, strict=True):
                self.vectors[row] = vector
        if output.head_scores is not None:
            if self.heads is None:
                self.heads = np.full((len(self.pairs), output.head_scores.shape[1]), np.nan)
            self.heads[rows] = output.head_scores
        self.held.release(rows)
        if output.state is not None:
            self.held.put(rows, output.state, backend)

    def follow(self, engine_stage: int, rows: Rows, backend: Backend[Any]) -> Rows:
        """The rows that may enter the next stage, now that `rows` have finished this one.

        Where the policy waits, all of the question's rows must finish the stage first. Elsewhere rows pass at once,
        unless the question has a deadline: an order of all candidates by one stage is then worth more than a few
        candidates scored by later stages.
        """
        stage = engine_stage - self.first_stage
        if stage < self._last and self.deadline is None and not self.policy.waits(stage):
            return rows
        self._waiting -= len(rows)
        return rows[:0] if self._waiting else self._finish(stage, backend)

    def _finish(self, stage: int, backend: Backend[Any]) -> Rows:
        """Commit the stage's scores and apply its exit's drop; returns the rows that continue."""
        before, candidates = self._survival.alive, self._survival.alive_candidates
        rows = self._survival.end(stage, self.trace[before, stage])
        self.done = stage == self._last
        if self.done:
            return rows[:0]
        if len(rows) < len(before):
            self.dropped.append((self.first_stage + stage, candidates - self._survival.alive_candidates))
            self.held.release(np.delete(before, rows))
            self.held.compact(backend)
        self._waiting = len(rows)
        return self._survival.alive

    def release_states(self) -> None:
        """Free hidden states and vectors: the question is answered, though its answer may still be rendered."""
        self.held, self.vectors = WaitingStates(self.pairs.lengths), None

    def ranked(self, *, now: float, complete: bool) -> Ranked:
        """The order by the completed stages; while stage 0 is incomplete, by the scores that it has given so far."""
        started = self.started if self.started is not None else now
        scores, stages = self._survival.scores, self._survival.stages
        if (stages == UNSCORED).all():
            scores = self.trace[:, 0]
            stages = np.where(np.isnan(scores), UNSCORED, 0)
        through = (stages == self._last)[:, None]
        heads = None if self.heads is None else np.where(through, self.heads, np.nan)
        spans = None
        if (windows := self.pairs.windows) is not None:
            scores, stages, spans, heads = windows.folded(scores, stages, heads)
        return Ranked(
            order=order(stages, np.nan_to_num(scores)),
            scores=scores,
            stages=stages,
            heads=heads,
            complete=complete,
            queue_seconds=started - self.submitted,
            compute_seconds=now - started - self.waited,
            vectors=self.vectors,
            spans=spans,
        )
