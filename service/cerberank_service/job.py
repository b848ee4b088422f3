"""One question on its way through the engine: its survivors, their states, and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backend import Backend, Scores, StageOutput
from cerberank_models.drop import order, survivors
from cerberank_models.encoding import EncodedPairs
from cerberank_service.errors import ServiceError

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """What the engine found out; arrays are by pair."""

    order: Rows
    scores: Scores
    stages: Rows
    heads: Scores | None
    complete: bool
    queue_seconds: float
    compute_seconds: float


Outcome = Ranked | ServiceError


@dataclass(kw_only=True, slots=True)
class Job:
    """A question in the engine. Only the engine's thread touches it after `submit`."""

    pairs: EncodedPairs
    schedule: tuple[float, ...]
    minimum: int
    submitted: float
    """Seconds on the engine's clock."""
    deadline: float | None
    resolve: Callable[[Outcome], None]
    """Called exactly once, from the engine's thread."""
    stage: int = 0
    started: float | None = None
    alive: Rows = field(init=False)
    scores: Scores = field(init=False)
    stages: Rows = field(init=False)
    heads: Scores | None = None
    _fresh: Scores = field(init=False)
    _fresh_heads: Scores | None = None
    _left: NDArray[np.bool_] = field(init=False)
    """Shape [n]: the rows that the present stage has yet to run."""
    _held: list[tuple[Rows, Any]] = field(default_factory=list)
    _next: list[tuple[Rows, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing is known yet: every score is NaN until the first stage is complete."""
        self.alive = np.arange(len(self.pairs), dtype=np.int64)
        self.scores = np.full(len(self.pairs), np.nan)
        self.stages = np.zeros(len(self.pairs), dtype=np.int64)
        self._fresh = np.full(len(self.pairs), np.nan)
        self._left = np.ones(len(self.pairs), dtype=np.bool_)

    @property
    def stage_complete(self) -> bool:
        """Whether at least one stage has scored every candidate, so that there is an order to answer with."""
        return self.stage > 0

    def state_of(self, backend: Backend[Any], rows: Rows) -> Any:
        """The state from which the present stage runs for `rows`, in that order."""
        if self.stage == 0:
            return backend.start(self.pairs.select(rows))
        parts, found = [], []
        for held, state in self._held:
            if np.array_equal(held, rows):  # as it is where nothing was dropped
                return state
            place = np.flatnonzero(np.isin(held, rows, assume_unique=True))
            if len(place):
                parts.append(backend.select(state, place))
                found.append(held[place])
        gathered = np.concatenate(found)
        joined = backend.concat(parts)
        if np.array_equal(gathered, rows):
            return joined
        by_row = np.argsort(gathered)
        return backend.select(joined, by_row[np.searchsorted(gathered, rows, sorter=by_row)])

    def record(self, rows: Rows, output: StageOutput[Any]) -> None:
        """Keep what the present stage gave for `rows`, aligned with them; give up the states that it ran from."""
        self._fresh[rows] = output.scores
        self._left[rows] = False
        self._held = [(held, state) for held, state in self._held if self._left[held].any()]
        if output.head_scores is not None:
            if self._fresh_heads is None:
                self._fresh_heads = np.full((len(self.pairs), output.head_scores.shape[1]), np.nan)
            self._fresh_heads[rows] = output.head_scores
        if output.state is not None:
            self._next.append((rows, output.state))

    def finish_stage(self, last: bool) -> int:
        """Commit the stage's scores and drop; returns how many candidates were dropped."""
        self.scores[self.alive] = self._fresh[self.alive]
        self.stages[self.alive] = self.stage
        self.heads = self._fresh_heads
        self._held, self._next = self._next, []
        before = len(self.alive)
        if not last:
            kept = survivors(self.scores[self.alive], self.schedule[self.stage], self.minimum)
            self.alive = self.alive[kept]
        self._left[self.alive] = True
        self.stage += 1
        return before - len(self.alive)

    def ranked(self, *, now: float, complete: bool) -> Ranked:
        """The order by what is known now."""
        started = self.started if self.started is not None else now
        return Ranked(
            order=order(self.stages, self.scores),
            scores=self.scores,
            stages=self.stages,
            heads=self.heads,
            complete=complete,
            queue_seconds=started - self.submitted,
            compute_seconds=now - started,
        )


def split(output: StageOutput[Any], sizes: Sequence[int], backend: Backend[Any]) -> list[StageOutput[Any]]:
    """Cut the output of a joint batch into one output a question."""
    if len(sizes) == 1:
        return [output]
    parts, start = [], 0
    for size in sizes:
        place = np.arange(start, start + size)
        parts.append(
            StageOutput(
                state=None if output.state is None else backend.select(output.state, place),
                scores=output.scores[place],
                head_scores=None if output.head_scores is None else output.head_scores[place],
            )
        )
        start += size
    return parts
