"""Agreement of heads with teachers, by the number of teachers that are right (CERBERUS section 5.3).

A head or teacher is right if it ranks a correct candidate first. With ties, figures are expectations over independent
random orders of the tied candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of a head with a teacher, as sums over questions."""

    shared: float = 0.0
    """The number of questions where head and teacher rank the same correct candidate first."""
    correct: float = 0.0
    """The number of questions where the head ranks a correct candidate first."""

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.shared + other.shared, self.correct + other.correct)

    @property
    def share(self) -> float | None:
        """The share of the questions in `correct` that are also in `shared`; None if `correct` is 0."""
        return self.shared / self.correct if self.correct else None


def agreement(
    labels: NDArray[np.integer], head_ranks: NDArray[np.integer], teacher_ranks: NDArray[np.integer]
) -> Agreement:
    """The agreement on one question with `labels[n]` (0 or 1). Ranks [n] begin with 0; equal ranks are ties.

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
    """The agreement of a head with all teachers together. Index m of a field counts questions with m right teachers."""

    questions: tuple[float, ...] = ()
    right: tuple[float, ...] = ()
    """The number of these questions where the head is right too."""

    def __add__(self, other: Majority) -> Majority:
        if not self.questions:
            return other
        return Majority(
            tuple(a + b for a, b in zip(self.questions, other.questions, strict=True)),
            tuple(a + b for a, b in zip(self.right, other.right, strict=True)),
        )

    def where(self, group: str) -> tuple[float, float]:
        """The number of questions of one of GROUPS, and the number of these where the head is right."""
        teachers = len(self.questions) - 1
        places = [right for right in range(teachers + 1) if _group(right, teachers) == group]
        return sum(self.questions[place] for place in places), sum(self.right[place] for place in places)


GROUPS = ("all", "majority", "minority", "none")
"""The groups of questions: all teachers are right, more than half, at most half, none."""


def _group(right: int, teachers: int) -> str:
    if right in (0, teachers):
        return "all" if right else "none"
    return "majority" if 2 * right > teachers else "minority"


def majority(
    labels: NDArray[np.integer], head_ranks: NDArray[np.integer], teachers: Sequence[NDArray[np.integer]]
) -> Majority:
    """The sums for one question with `labels[n]` (0 or 1). Head and teachers have ranks [n]; equal ranks are ties.

    >>> majority(np.array([1, 0]), np.array([0, 1]), [np.array([0, 1]), np.array([1, 0])])
    Majority(questions=(0.0, 1.0, 0.0), right=(0.0, 1.0, 0.0))
    """
    chances = np.ones(1)
    for ranks in teachers:
        right = _chance(labels, ranks)
        chances = np.convolve(chances, [1 - right, right])
    head_chance = _chance(labels, head_ranks)
    return Majority(tuple(chances.tolist()), tuple((head_chance * chances).tolist()))


def _chance(labels: NDArray[np.integer], ranks: NDArray[np.integer]) -> float:
    """The share of correct candidates among those that are tied for the first place."""
    return float(labels[ranks == ranks.min()].mean())
