"""The rules of dropping: which candidates an exit drops, the order of all candidates, and the cost.

An exit drops `alpha * alive` candidates, rounded to the nearest integer. CT (section 4.3.2) contradicts itself here:
with 128 candidates and a ratio of .3, its text rounds down (90, 63, 45, 32 stay) and its example to the nearest integer
(90, 63, 44, 31 stay). This module follows the example, and adds rules that the paper leaves open:

- A fraction of exactly one half is rounded down.
- At least `minimum` candidates stay.
- Of candidates with equal scores, the earlier one stays.
- A dropped candidate ranks below every survivor, because scores of different exits cannot be compared.

Before the first stage the lexical layer may drop a share by its scores (`lexical.py`). They are often equal, so that of
candidates with equal scores all stay if one does: candidates that share no word with the question are all kept, unless
enough others share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_DOWN, Decimal
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cerberank_models.windows import Windows

UNSCORED = -1
"""The stage of a candidate that no stage has scored."""


class DropPolicy(Protocol):
    """Decides which candidates stay alive after each stage but the last. Immutable: many threads may share one."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """The drop schedule for answers, logs and metrics, one ratio per exit; empty for a policy without ratios."""

    def survivors(self, stage: int, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """The rows of `scores[n]` that stay alive after `stage` (counted from 0): ascending, at least one.

        `scores` holds the scores of all candidates of the question that are still alive.
        """

    def expected_alive(self, candidates: int) -> Sequence[float]:
        """The expected number of candidates that enter each stage: one number per stage; the first is `candidates`."""

    def waits(self, stage: int) -> bool:
        """True if `survivors` needs all scores of `stage` at once; False if nothing is dropped after it."""

    def after_first(self) -> DropPolicy:
        """The policy of the stages after stage 0, renumbered from 0."""

    @property
    def lexical(self) -> float:
        """The share of the candidates that the lexical layer drops before stage 0."""

    def lexical_survivors(self, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """The rows of the lexical `scores[n]` that enter stage 0: ascending, at least one."""

    def without_lexical(self) -> DropPolicy:
        """The policy of the candidates that the lexical layer has kept."""


@dataclass(frozen=True, slots=True)
class RatioSchedule:
    """Drops a fixed share of the alive candidates at each exit (CT section 4.3). Raises ValueError outside [0, 1).

    >>> RatioSchedule((0.3, 0.3, 0.3, 0.3)).expected_alive(128)
    (128, 90, 63, 44, 31)
    >>> RatioSchedule((0.5,)).survivors(0, np.array([0.1, 0.9, 0.9, 0.4])).tolist()
    [1, 2]
    """

    ratios: tuple[float, ...]
    """One ratio for each stage but the last."""
    minimum: int = 1
    """The least number of candidates that stay alive."""
    lexical: float = 0.0
    """The share that the lexical layer drops before the first stage."""

    def __post_init__(self) -> None:
        """Check the ratios. NaN is rejected too, because its comparisons are false."""
        for alpha in (*self.ratios, self.lexical):
            if not 0.0 <= alpha < 1.0:
                raise ValueError(f"every drop ratio must be at least 0 and below 1, not {alpha}")

    def __str__(self) -> str:
        """The ratios as reports print them: `0.3,0.5`, `0.85,0.95 (at least 20)`, or `lexical 0.2, then 0.5,0.5`."""
        ratios = ",".join(f"{alpha:g}" for alpha in self.ratios)
        if self.lexical:
            ratios = f"lexical {self.lexical:g}" + (f", then {ratios}" if ratios else "")
        return ratios if self.minimum == 1 else f"{ratios} (at least {self.minimum})"

    def survivors(self, stage: int, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """The rows with the highest scores; among equal scores, the earlier rows."""
        dropped = drop_count(len(scores), self.ratios[stage], self.minimum)
        if not dropped:
            return np.arange(len(scores), dtype=np.int64)
        best_first = np.argsort(-scores, kind="stable")
        return np.sort(best_first[: len(scores) - dropped])

    def expected_alive(self, candidates: int) -> tuple[int, ...]:
        """The number of candidates that enter each stage. It is exact, except that the lexical layer keeps ties.

        >>> RatioSchedule((0.5,), lexical=0.2).expected_alive(100)
        (80, 40)
        """
        counts = [candidates - drop_count(candidates, self.lexical, self.minimum)]
        for alpha in self.ratios:
            counts.append(counts[-1] - drop_count(counts[-1], alpha, self.minimum))
        return tuple(counts)

    def waits(self, stage: int) -> bool:
        """True if `stage` has a ratio above 0."""
        return self.ratios[stage] != 0.0

    def after_first(self) -> RatioSchedule:
        """The schedule without its first ratio. Raises ValueError for a schedule of one stage.

        >>> str(RatioSchedule((0.9, 0.3), minimum=20).after_first())
        '0.3 (at least 20)'
        """
        if not self.ratios:
            raise ValueError("there is no stage after the first")
        return replace(self, ratios=self.ratios[1:])

    def lexical_survivors(self, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """The rows with the highest scores, and those with a score that is equal to one of theirs.

        >>> RatioSchedule((), lexical=0.5).lexical_survivors(np.array([0.0, 3.0, 0.0, 2.0])).tolist()
        [1, 3]
        >>> RatioSchedule((), lexical=0.5).lexical_survivors(np.array([0.0, 3.0, 0.0, 0.0])).tolist()
        [0, 1, 2, 3]
        """
        dropped = drop_count(len(scores), self.lexical, self.minimum)
        if not dropped:
            return np.arange(len(scores), dtype=np.int64)
        return np.flatnonzero(scores >= np.partition(scores, dropped)[dropped])

    def without_lexical(self) -> RatioSchedule:
        """The schedule of the candidates that the lexical layer has kept."""
        return replace(self, lexical=0.0)


def drop_ratios(requested: float | Sequence[float] | None, default: Sequence[float]) -> tuple[float, ...]:
    """One ratio per exit. `requested` is one number for all exits, one number per exit, or None for `default`.

    >>> drop_ratios(0.3, (0.1, 0.1)), drop_ratios((0.5, 0), (0.1, 0.1)), drop_ratios(None, (0.1, 0.1))
    ((0.3, 0.3), (0.5, 0.0), (0.1, 0.1))

    `default` has a ratio for each exit. Raises ValueError when `requested` has a different number of ratios.
    """
    if requested is None:
        return tuple(default)
    if isinstance(requested, float | int):
        return (float(requested),) * len(default)
    check_exits(len(default) + 1, len(requested))
    return tuple(float(alpha) for alpha in requested)


def check_exits(stages: int, ratios: int) -> None:
    """Raise ValueError unless `ratios`, a number of ratios, is one less than `stages`, a number of stages."""
    exits = stages - 1
    if ratios != exits:
        raise ValueError(f"{stages} stages take {exits} drop ratios, not {ratios}: one for each of the {exits} exits")


def drop_count(alive: int, alpha: float, minimum: int = 1) -> int:
    """The number of the `alive` candidates that an exit drops at a ratio of `alpha`.

    >>> [drop_count(alive, 0.3) for alive in (128, 90, 63, 44)]
    [38, 27, 19, 13]
    >>> drop_count(5, 0.5), drop_count(10, 0.9, minimum=4)
    (2, 6)
    """
    # Decimal arithmetic, because 0.15 * 10 has to be exactly one and a half, which it is not in binary floats.
    wanted = int((Decimal(repr(float(alpha))) * alive).quantize(Decimal(1), rounding=ROUND_HALF_DOWN))
    return max(0, min(wanted, alive - max(1, minimum)))


class Survival:
    """The state of one question's rows between stages: which rows are alive, and the last score of each row.

    A row is a candidate, or one window of a candidate. All windows of a candidate stay or are dropped together, by
    their combined score.
    """

    __slots__ = ("_last", "_policy", "_windows", "alive", "alive_candidates", "scores", "stages")

    def __init__(self, rows: int, stages: int, policy: DropPolicy, windows: Windows | None = None) -> None:
        """Begin with all rows alive and none scored. Without `windows` each row is a candidate."""
        self._policy = policy
        self._last = stages - 1
        self._windows = windows
        self.alive: NDArray[np.int64] = np.arange(rows, dtype=np.int64)
        """The rows that are alive, ascending."""
        self.alive_candidates = rows if windows is None else len(windows)
        """The number of candidates that the alive rows belong to."""
        self.scores: NDArray[np.float64] = np.full(rows, np.nan)
        """Shape [n]: each row's score at the last stage that it has finished, NaN before the first."""
        self.stages: NDArray[np.int64] = np.full(rows, UNSCORED, dtype=np.int64)
        """Shape [n]: the last stage that each row has finished, or UNSCORED."""

    def end(self, stage: int, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """Record the `scores` of the alive rows, then drop; returns the indices in `scores` that stay, ascending.

        The last stage drops nothing.
        """
        self.scores[self.alive], self.stages[self.alive] = scores, stage
        if stage == self._last:
            return np.arange(len(self.alive), dtype=np.int64)
        places = self._survivors(stage, scores)
        if len(places) < len(self.alive):
            self.alive = self.alive[places]
        return places

    def _survivors(self, stage: int, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        if self._windows is None:
            places = self._policy.survivors(stage, scores)
            self.alive_candidates = len(places)
            return places
        starts = self._windows.starts(self.alive)
        survivors = self._policy.survivors(stage, self._windows.combined(self.scores[self.alive], starts))
        self.alive_candidates = len(survivors)
        stays = np.zeros(len(starts), dtype=np.bool_)
        stays[survivors] = True
        return np.flatnonzero(np.repeat(stays, np.diff(starts, append=len(self.alive))))


def order(stages: NDArray[np.integer], scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """The candidates, best first: by the later stage, then the higher score in that stage, then the earlier position.

    >>> order(np.array([1, 0, 1]), np.array([0.2, 0.9, 0.3])).tolist()
    [2, 0, 1]
    """
    return np.lexsort((np.arange(len(scores)), -scores, -stages)).astype(np.int64)


def relative_cost(stage_layers: Sequence[float], ratios: Sequence[float], lexical: float = 0.0) -> float:
    """Layers run per candidate, relative to running all layers (CT section 5.4), in the limit of many candidates.

    `lexical` is the share that is dropped before the first stage.

    >>> [round(relative_cost((4, 2, 2, 2, 2), (alpha,) * 4), 3) for alpha in (0.3, 0.4, 0.5)]
    [0.629, 0.551, 0.49]
    """
    check_exits(len(stage_layers), len(ratios))
    alive = 1.0 - lexical
    spent = alive * stage_layers[0]
    for layers, alpha in zip(stage_layers[1:], ratios, strict=True):
        alive *= 1.0 - alpha
        spent += alive * layers
    return spent / float(sum(stage_layers))


def cost_of(sizes: Sequence[int], stage_layers: Sequence[float], policy: DropPolicy) -> float:
    """Layers run on questions with `sizes` candidates, relative to running all layers on all candidates.

    >>> half, most = RatioSchedule((0.5, 0.5)), RatioSchedule((0.5, 0.5), minimum=20)
    >>> cost_of([100], (2, 2, 2), half), cost_of([100, 20], (2, 2, 2), most)
    (0.5833333333333334, 0.6527777777777778)

    Raises ValueError for a policy with a different number of stages, and when `sizes` is empty.
    """
    if not sizes:
        raise ValueError("there is no question to count the cost on")
    counts = [policy.expected_alive(size) for size in sizes]
    check_exits(len(stage_layers), len(counts[0]) - 1)
    run = sum(alive * layers for each in counts for alive, layers in zip(each, stage_layers, strict=True))
    return float(run) / float(sum(sizes) * sum(stage_layers))
