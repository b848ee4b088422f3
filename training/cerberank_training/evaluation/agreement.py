"""How often a head agrees with a teacher where the head is right (CERBERUS, analysis of the heads)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Agreement:
    """Sums over questions; with ties, expectations over independent random orders of the tied candidates."""

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
    return Agreement(shared, float((right & head).sum()) / float(head.sum()))
