"""Which candidates an exit drops, in which order they end up, and what that costs. No torch.

Rules (CT section 3, and the decisions where the paper is silent): an exit drops the nearest
integer to `alpha * alive`, a fraction of exactly one half rounding down; never below `minimum`;
ties keep the earlier candidate; a dropped candidate ranks below every survivor, because scores
of different exits cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_DOWN, Decimal

import numpy as np
from numpy.typing import NDArray


def drop_count(alive: int, alpha: float, minimum: int = 1) -> int:
    """How many of `alive` candidates go.

    >>> [drop_count(alive, 0.3) for alive in (128, 90, 63, 44)]
    [38, 27, 19, 13]
    >>> drop_count(5, 0.5), drop_count(10, 0.9, minimum=4)
    (2, 6)
    """
    if not 0.0 <= alpha < 1.0:
        raise ValueError(f"a drop ratio must be at least 0 and below 1, not {alpha}")
    # Decimal of the shortest text: 0.15 * 10 is one and a half here, which binary floats miss.
    wanted = int((Decimal(repr(float(alpha))) * alive).quantize(Decimal(1), rounding=ROUND_HALF_DOWN))
    return max(0, min(wanted, alive - max(1, minimum)))


def survivors(scores: NDArray[np.floating], alpha: float, minimum: int = 1) -> NDArray[np.int64]:
    """Rows (ascending) of `scores[n]` that stay alive.

    >>> survivors(np.array([0.1, 0.9, 0.9, 0.4]), 0.5).tolist()
    [1, 2]
    """
    keep = len(scores) - drop_count(len(scores), alpha, minimum)
    best_first = np.argsort(-scores, kind="stable")
    return np.sort(best_first[:keep])


def order(stages: NDArray[np.integer], scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Candidates best first: later stage, then higher score there, then earlier candidate.

    >>> order(np.array([1, 0, 1]), np.array([0.2, 0.9, 0.3])).tolist()
    [2, 0, 1]
    """
    return np.lexsort((np.arange(len(scores)), -scores, -stages)).astype(np.int64)


def alive_counts(candidates: int, schedule: Sequence[float], minimum: int = 1) -> list[int]:
    """Candidates that enter each stage.

    >>> alive_counts(128, (0.3, 0.3, 0.3, 0.3))
    [128, 90, 63, 44, 31]
    """
    counts = [candidates]
    for alpha in schedule:
        counts.append(counts[-1] - drop_count(counts[-1], alpha, minimum))
    return counts


def relative_cost(stage_layers: Sequence[float], schedule: Sequence[float]) -> float:
    """Layers run per candidate, relative to running all of them (CT section 4.3), in the limit of many.

    >>> [round(relative_cost((4, 2, 2, 2, 2), (alpha,) * 4), 3) for alpha in (0.3, 0.4, 0.5)]
    [0.629, 0.551, 0.49]
    """
    _check_length(stage_layers, schedule)
    spent, alive = float(stage_layers[0]), 1.0
    for layers, alpha in zip(stage_layers[1:], schedule, strict=True):
        alive *= 1.0 - alpha
        spent += alive * layers
    return spent / float(sum(stage_layers))


def cost_of(sizes: Sequence[int], stage_layers: Sequence[float], schedule: Sequence[float], minimum: int = 1) -> float:
    """Layers run on questions of so many candidates each, relative to running all of them on all candidates.

    >>> cost_of([100], (2, 2, 2), (0.5, 0.5)), cost_of([100, 20], (2, 2, 2), (0.5, 0.5), minimum=20)
    (0.5833333333333334, 0.6527777777777778)

    Raises ValueError for a schedule that does not fit, or without questions.
    """
    _check_length(stage_layers, schedule)
    if not sizes:
        raise ValueError("there is no question to count the cost on")
    counts = [alive_counts(size, schedule, minimum) for size in sizes]
    run = sum(alive * layers for each in counts for alive, layers in zip(each, stage_layers, strict=True))
    return float(run) / float(sum(sizes) * sum(stage_layers))


def _check_length(stage_layers: Sequence[float], schedule: Sequence[float]) -> None:
    if len(schedule) != len(stage_layers) - 1:
        raise ValueError(f"{len(stage_layers)} stages take {len(stage_layers) - 1} drop ratios, not {len(schedule)}")
