"""Agreement of heads with teachers: where a head is right, and by how many teachers are right (CERBERUS section 5.3).

Right means a correct candidate on top; with ties, figures are expectations over independent random orders of the tied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Agreement:
    """Sums over questions."""

    shared: float = 0.0
    """Questions where head and teacher put the same correct candidate on top."""
    correct: float = 0.0
    """Questions where the head puts a correct candidate on top."""

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.shared + other.shared, self.correct + other.correct)

    @property
    def share(self) -> float | None:
        """The fraction of the head's correct top candidates that the teacher shares; None if there are none."""
        return self.shared / self.correct if self.correct else None


def agreement(
    labels: NDArray[np.integer], head_ranks: NDArray[np.integer], teacher_ranks: NDArray[np.integer]
) -> Agreement:
    """The agreement on one question with `labels[n]` (0 or 1); both rankings are ranks [n], 0 best, equal = tied.

    >>> agreement(np.array([1, 0, 1]), np.array([0, 1, 2]), np.array([0, 2, 1]))
    Agreement(shared=1.0, correct=1.0)
    >>> agreement(np.array([1, 0, 1]), np.array([0, 0, 1]), np.array([0, 2, 1]))
    Agreement(shared=0.5, correct=0.5)
    """
    right, head, teacher = labels.astype(bool), head_ranks == head_ranks.min(), teacher_ranks == teacher_ranks.min()
    shared = float((right & head & teacher).sum()) / (float(head.sum()) * float(teacher.sum()))
    return Agreement(shared, _chance(labels, head_ranks))


@dataclass(frozen=True, slots=True)
class Majority:
    """A head beside all teachers together, over questions; place m of a field counts where m teachers are right."""

    questions: tuple[float, ...] = ()
    right: tuple[float, ...] = ()
    """Questions among them where the head is right."""

    def __add__(self, other: Majority) -> Majority:
        if not self.questions:
            return other
        return Majority(
            tuple(a + b for a, b in zip(self.questions, other.questions, strict=True)),
            tuple(a + b for a, b in zip(self.right, other.right, strict=True)),
        )

    def where(self, group: str) -> tuple[float, float]:
        """Questions of one of GROUPS, and those of them where the head is right."""
        teachers = len(self.questions) - 1
        places = [right for right in range(teachers + 1) if _group(right, teachers) == group]
        return sum(self.questions[place] for place in places), sum(self.right[place] for place in places)


GROUPS = ("all", "majority", "minority", "none")
"""Questions by the teachers that are right: every one, more than half, at most half, nobody."""


def _group(right: int, teachers: int) -> str:
    if right in (0, teachers):
        return "all" if right else "none"
    return "majority" if 2 * right > teachers else "minority"


def majority(
    labels: NDArray[np.integer], head_ranks: NDArray[np.integer], teachers: Sequence[NDArray[np.integer]]
) -> Majority:
    """One question with `labels[n]` (0 or 1); rankings of the head and of k teachers are ranks [n], equal = tied.

    >>> majority(np.array([1, 0]), np.array([0, 1]), [np.array([0, 1]), np.array([1, 0])])
    Majority(questions=(0.0, 1.0, 0.0), right=(0.0, 1.0, 0.0))
    """
    chances = np.ones(1)
    for ranks in teachers:
        right = _chance(labels, ranks)
        chances = np.convolve(chances, [1 - right, right])
    own = _chance(labels, head_ranks)
    return Majority(tuple(chances.tolist()), tuple((own * chances).tolist()))


def _chance(labels: NDArray[np.integer], ranks: NDArray[np.integer]) -> float:
    """The share of correct candidates among those that are tied on top."""
    return float(labels[ranks == ranks.min()].mean())
