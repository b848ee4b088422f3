"""The state of one `Work` in the engine: its surviving candidates, their scores by stage, and its result."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Backend, Scores, StageOutput, Vector
from cerberank_models.drop import UNSCORED, Survival, order
from cerberank_service.engine.low_priority import LiveTraffic
from cerberank_service.engine.waiting_states import Rows, WaitingStates
from cerberank_service.engine.work import Outcome, Ranked, Work


@dataclass(kw_only=True, slots=True)
class Pending:
    """A work in the engine. Only the engine's thread changes it, except for `cancelled`."""

    work: Work
    key: int
    """The engine's identifier of the work."""
    outcome: Future[Outcome]
    """Set exactly once: by the engine's thread, or by the watchdog when the engine is given up."""
    submitted: float
    """Time of submission, on the engine's clock."""
    live_traffic: LiveTraffic | None = None
    """Set for a work that yields to live traffic: its steps are short, and each starts while no request is answered."""
    cancelled: bool = False
    """Set by any thread when the client has disconnected."""
    started: float | None = None
    yielded_seconds: float = 0.0
    """Seconds since `started` that were spent waiting for live traffic."""
    done: bool = False
    dropped: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of an engine's stage and the number of candidates that its exit dropped."""
    tokens_run: int = 0
    waiting_states: WaitingStates = field(init=False)
    stage_scores: Scores = field(init=False)
    """Shape [n, stages]: the scores of every stage, NaN for rows that the stage did not score."""
    heads: Scores | None = None
    vectors: list[Vector | None] | None = None
    _survival: Survival = field(init=False)
    _last: int = field(init=False)
    """The last stage."""
    _unfinished: int = field(init=False)
    """Number of rows that have not finished the current stage; its exit drops rows when this reaches 0."""

    def __post_init__(self) -> None:
        """Start with all rows alive and none scored."""
        pairs, policy = self.work.pairs, self.work.policy
        count, stages = len(pairs), len(policy.expected_alive(pairs.candidates))
        self._last = stages - 1
        self._survival = Survival(count, stages, policy, pairs.windows)
        self.waiting_states = WaitingStates(pairs.lengths)
        self.stage_scores = np.full((count, stages), np.nan)
        self._unfinished = count
        if self.work.dropped:
            self.dropped.append((self.work.begins_at - 1, self.work.dropped))

    @property
    def has_order(self) -> bool:
        """True if any candidate was scored, so that the answer can have an order."""
        scored = ~np.isnan(self.stage_scores[:, 0])
        if self.work.leads:
            return bool(scored[0] and (self.work.ordered or scored[1:].any()))
        return self.work.ordered or bool(scored.any())

    def lengths(self, rows: Rows) -> NDArray[np.int64]:
        """The lengths of `rows` in tokens, for the scheduler, which runs longer rows first.

        If the work `leads`, row 0 is given the greatest length, so that it is in the first step.
        """
        lengths = self.work.pairs.lengths
        if self.work.leads:
            lengths[0] = lengths.max()
        return lengths[rows]

    def record(self, engine_stage: int, rows: Rows, output: StageOutput[Any], backend: Backend[Any]) -> None:
        """Store the output of a stage, which is in the order of `rows`; release the input states of these rows."""
        self.stage_scores[rows, engine_stage - self.work.begins_at] = output.scores
        if output.vectors is not None:
            if self.vectors is None:
                self.vectors = [None] * len(self.work.pairs)
            for row, vector in zip(rows.tolist(), output.vectors, strict=True):
                self.vectors[row] = vector
        if output.head_scores is not None:
            if self.heads is None:
                self.heads = np.full((len(self.work.pairs), output.head_scores.shape[1]), np.nan)
            self.heads[rows] = output.head_scores
        self.waiting_states.release(rows)
        if output.state is not None:
            self.waiting_states.put(rows, output.state, backend)

    def next_rows(self, engine_stage: int, rows: Rows, backend: Backend[Any]) -> Rows:
        """The rows that may enter the next stage after `rows` have finished this one.

        If the drop policy needs all scores of the stage, the rows wait until all have finished it. Otherwise they
        continue at once, unless the question has a deadline. With a deadline, a stage is finished for all candidates
        first, because an order of all of them is worth more than later scores of a few.
        """
        stage = engine_stage - self.work.begins_at
        if stage < self._last and self.work.deadline is None and not self.work.policy.waits(stage):
            return rows
        self._unfinished -= len(rows)
        return rows[:0] if self._unfinished else self._finish(stage, backend)

    def _finish(self, stage: int, backend: Backend[Any]) -> Rows:
        """Accept the stage's scores as final and drop rows by its exit; returns the rows that continue."""
        before, candidates = self._survival.alive, self._survival.alive_candidates
        rows = self._survival.end(stage, self.stage_scores[before, stage])
        self.done = stage == self._last
        if self.done:
            return rows[:0]
        if len(rows) < len(before):
            self.dropped.append((self.work.begins_at + stage, candidates - self._survival.alive_candidates))
            self.waiting_states.release(np.delete(before, rows))
            self.waiting_states.compact(backend)
        self._unfinished = len(rows)
        return self._survival.alive

    def ranked(self, *, now: float, complete: bool) -> Ranked:
        """The order by the completed stages or, while stage 0 is incomplete, by its scores so far."""
        started = self.started if self.started is not None else now
        scores, stages = self._survival.scores, self._survival.stages
        if (stages == UNSCORED).all():
            scores = self.stage_scores[:, 0]
            stages = np.where(np.isnan(scores), UNSCORED, 0)
        finished = (stages == self._last)[:, None]
        heads = None if self.heads is None else np.where(finished, self.heads, np.nan)
        spans = None
        if (windows := self.work.pairs.windows) is not None:
            scores, stages, spans, heads = windows.folded(scores, stages, heads)
        return Ranked(
            order=order(stages, np.nan_to_num(scores)),
            scores=scores,
            stages=stages,
            heads=heads,
            complete=complete,
            queue_seconds=started - self.submitted,
            compute_seconds=now - started - self.yielded_seconds,
            vectors=self.vectors,
            spans=spans,
        )
