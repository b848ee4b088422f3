"""Ranks one question's candidates through all stages; the offline twin of the service's engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Backend, Scores
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.drop import order, survivors
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder


class NonFiniteScoreError(ArithmeticError):
    """A stage gave NaN or infinity, which cannot be ranked."""


class GoldenMismatchError(RuntimeError):
    """The backend does not reproduce the checkpoint's golden scores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The result for n candidates; arrays are by candidate, `order` lists candidates best first."""

    order: NDArray[np.int64]
    scores: Scores
    """Shape [n]: the score at the last stage that the candidate reached."""
    stages: NDArray[np.int64]
    """Shape [n]: that stage, counted from 0."""
    head_scores: Scores | None
    """Shape [n, k], NaN for candidates that were dropped before the heads; None without heads."""


def check_schedule(schedule: Sequence[float] | None, backend: Backend[Any]) -> tuple[float, ...]:
    """The schedule to use; None means the checkpoint's. Raises ValueError when it does not fit the stages."""
    if schedule is None:
        return backend.config.schedule
    wanted = len(backend.config.stages) - 1
    if len(schedule) != wanted:
        raise ValueError(f"this ranker drops after {wanted} exits and takes {wanted} drop ratios, not {len(schedule)}")
    if not all(0.0 <= alpha < 1.0 for alpha in schedule):
        raise ValueError("every drop ratio must be at least 0 and below 1")
    return tuple(schedule)


def rank_pairs(
    backend: Backend[Any],
    pairs: EncodedPairs,
    *,
    schedule: Sequence[float] | None = None,
    minimum: int = 1,
) -> Ranking:
    """Run the stages over one question's pairs, dropping by `schedule` (None: the checkpoint's default and minimum).

    At least `minimum` candidates reach the last stage. Raises ValueError without candidates or for a schedule
    that does not fit, NonFiniteScoreError when a score is NaN.
    """
    if len(pairs) == 0:
        raise ValueError("there must be at least one candidate")
    if schedule is None:
        minimum = max(minimum, backend.config.drop_minimum)
    schedule = check_schedule(schedule, backend)
    alive = np.arange(len(pairs), dtype=np.int64)
    scores = np.empty(len(pairs), dtype=np.float64)
    stages = np.zeros(len(pairs), dtype=np.int64)
    heads: Scores | None = None
    state = backend.start(pairs)
    for stage in range(len(schedule) + 1):
        output = backend.run(state, stage)
        if not np.isfinite(output.scores).all():
            raise NonFiniteScoreError(f"stage {stage} gave a score that is not a number")
        scores[alive], stages[alive] = output.scores, stage
        if output.head_scores is not None:
            heads = np.full((len(pairs), output.head_scores.shape[1]), np.nan)
            heads[alive] = output.head_scores
        if stage < len(schedule):
            rows = survivors(output.scores, schedule[stage], minimum)
            alive = alive[rows]
            state = output.state if len(rows) == len(output.scores) else backend.select(output.state, rows)
    return Ranking(order=order(stages, scores), scores=scores, stages=stages, head_scores=heads)


def check_golden(
    backend: Backend[Any],
    checkpoint: Checkpoint,
    precision: str,
    *,
    encoder: PairEncoder | None = None,
    pause: Callable[[], None] = lambda: None,
) -> None:
    """Score every golden question without dropping.

    `encoder` is one of the checkpoint's; None makes one. `pause` is called before each question.
    Raises GoldenMismatchError when a score lies outside its tolerance or the precision has no recorded scores.
    """
    encoder = encoder or checkpoint.encoder()
    keep_all = (0.0,) * (len(checkpoint.config.stages) - 1)
    for golden in checkpoint.golden:
        if precision not in golden.scores:
            raise GoldenMismatchError(f"golden.jsonl has no {precision} scores")
        pause()
        candidates = [Candidate(text=c.text, previous=c.previous, next=c.next) for c in golden.candidates]
        got = rank_pairs(backend, encoder.encode(golden.question, candidates), schedule=keep_all).scores
        difference = float(np.abs(got - np.asarray(golden.scores[precision])).max())
        if not difference <= golden.tolerance[precision]:
            raise GoldenMismatchError(
                f"{golden.question!r}: scores differ from the golden ones by {difference:.3g}, "
                f"more than {golden.tolerance[precision]:g} ({precision})"
            )
