"""The differences of two versions' rankings, of one question and of all mirrored ones. Pure.

Arrays are by pair, n of them, in the same order for both versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Scores

PERSISTENCE = 0.9
"""The parameter p of rank-biased overlap, the probability that a reader goes on to the next rank: 0.9 gives the first
ten ranks a weight of 86 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The differences of a second version's ranking from the first version's."""

    flipped: bool
    """Whether another candidate comes first."""
    overlap: float
    """Rank-biased overlap, 1 for the same order."""
    shift: float
    """Mean absolute difference of the scores, each taken at the stage that its candidate reached."""


def compare(
    order: NDArray[np.int64], scores: Scores, other_order: NDArray[np.int64], other_scores: Scores
) -> Comparison:
    """Compare two rankings of the same pairs; orders hold every pair once, best first."""
    return Comparison(
        flipped=bool(order[0] != other_order[0]),
        overlap=rank_biased_overlap(order, other_order),
        shift=float(np.abs(scores - other_scores).mean()),
    )


def rank_biased_overlap(
    order: NDArray[np.int64], other: NDArray[np.int64], *, persistence: float = PERSISTENCE
) -> float:
    """RBO_ext of two whole orders of the same items (Webber, Moffat and Zobel 2010, eq. 32 at equal depths), 0..1.

    >>> rank_biased_overlap(np.array([0, 1, 2]), np.array([0, 1, 2]))
    1.0
    """
    count = len(order)
    deepest = np.empty(count, dtype=np.int64)
    deepest[order] = np.arange(count)
    deepest[other] = np.maximum(deepest[other], np.arange(count))
    depth = np.arange(1, count + 1)
    agreement = np.cumsum(np.bincount(deepest, minlength=count)) / depth
    weights = persistence**depth
    total = agreement[-1] * weights[-1] + (1.0 - persistence) / persistence * float(agreement @ weights)
    return min(1.0, float(total))


@dataclass(slots=True)
class ShadowFigures:
    """Sums over the questions that were mirrored from `stable` to `shadow`."""

    stable: str
    shadow: str
    questions: int = 0
    flips: int = 0
    overlap: float = 0.0
    shift: float = 0.0
    stable_seconds: float = 0.0
    shadow_seconds: float = 0.0
    failures: int = 0
    """Questions that only the shadow failed to answer."""
    skipped: int = 0
    """Questions that were not mirrored: the service was busy, or the shadow cannot take them."""

    def add(self, comparison: Comparison, *, stable_seconds: float, shadow_seconds: float) -> None:
        """Add one mirrored question."""
        self.questions += 1
        self.flips += comparison.flipped
        self.overlap += comparison.overlap
        self.shift += comparison.shift
        self.stable_seconds += stable_seconds
        self.shadow_seconds += shadow_seconds

    def describe(self) -> dict[str, Any]:
        """Counts, and means over all mirrored questions that are null before the first one."""
        count = self.questions
        ratio = self.shadow_seconds / self.stable_seconds if self.stable_seconds > 0 else 1.0
        return {
            "stable": self.stable,
            "shadow": self.shadow,
            "questions": count,
            "flips": self.flips,
            "failures": self.failures,
            "skipped": self.skipped,
            "flip_percent": 100.0 * self.flips / count if count else None,
            "rank_biased_overlap": self.overlap / count if count else None,
            "score_shift": self.shift / count if count else None,
            "latency_ratio": ratio if count else None,
        }
