"""The one call that every dialect translates to, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Scores
from cerberank_models.encoding import Candidate


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCall:
    """Rank `candidates` for `question`."""

    question: str
    candidates: tuple[Candidate, ...]
    model: str | None = None
    version: str | None = None
    """Refused with 404 when another one is served."""
    top_k: int | None = None
    drop_ratio: float | tuple[float, ...] | None = None
    """One ratio for every exit, or one per exit; None takes the checkpoint's schedule."""
    deadline_ms: float | None = None
    latency_target_ms: float | None = None
    """Choose the gentlest tuned schedule that is in time; without effect beside `drop_ratio`."""
    priority: int = 0
    """0 (the highest) to 999."""
    refuse_truncation: bool = False
    """Fail rather than cut a text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Milliseconds; queue is the wait for the first engine step, compute what follows it."""

    encode: float
    queue: float
    compute: float
    total: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RankAnswer:
    """The order; arrays are by candidate, n of them."""

    request_id: str
    model: str
    version: str
    drop_schedule: tuple[float, ...]
    complete: bool
    order: NDArray[np.int64]
    """The best first, already cut to `top_k`."""
    scores: Scores
    """NaN for candidates that no stage scored before the deadline."""
    stages: NDArray[np.int64]
    """-1 for those."""
    heads: Scores | None
    """Shape [n, k], NaN for candidates that no head saw."""
    truncated: NDArray[np.bool_]
    tokens: int
    timing: Timing
    warnings: tuple[str, ...] = field(default=())
    expected_loss: Mapping[str, float] = field(default_factory=dict)
    """Points of each metric that the schedule is expected to cost; empty when that is not known."""

    def falling_scores(self) -> Scores:
        """Scores in `order`, never rising.

        Scores of different exits cannot be compared, so a dropped candidate may carry a higher one than a
        survivor above it. Dialects without a stage would have their clients sort by it: it is capped. Candidates
        without a score get 0, because those dialects have no word for that either; a warning tells.
        """
        return np.minimum.accumulate(np.nan_to_num(self.scores[self.order]))

    def falling_log_odds(self) -> Scores:
        """The same before the sigmoid; finite, because JSON has no infinity."""
        inside = np.clip(self.falling_scores(), 1e-12, 1 - 1e-12)
        return np.log(inside) - np.log1p(-inside)
