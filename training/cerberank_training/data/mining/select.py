"""The rule that selects negatives among the texts that a search has found, with limits on their scores."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray

from cerberank_models.commands.values import Count, Whole


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The choice of negatives: options of `data mine`, with sentence-transformers' names."""

    negatives: Count = 8
    """Most negatives to write for a question."""
    skip: Whole = 0
    """Number of each question's best hits to skip."""
    top: Count = 100
    """Number of each question's best hits to choose from."""
    relative_margin: float | None = None
    """Least difference between the lowest positive's score and a negative's, as a share of the first, such as 0.05."""
    choose: Literal["top", "random"] = "top"
    """Choice among the negatives that were found: the best ones, or a random draw."""
    seed: Whole = 1
    """Random seed."""

    def check(self) -> None:
        """Raise ValueError, which names the option, for values out of range."""
        if self.negatives < 1 or self.skip < 0 or self.top <= self.skip:
            raise ValueError("--negatives must be at least 1, --skip at least 0, --top above --skip")
        if self.relative_margin is not None and not 0 <= self.relative_margin < 1:
            raise ValueError(f"--relative-margin is {self.relative_margin}; it is from 0 to below 1, and 0.05 is 5 %")

    def limit(self, positives: NDArray[np.floating]) -> float:
        """The highest score that a negative may have beside positives with these scores."""
        lowest = float(positives.min())
        return math.inf if self.relative_margin is None else lowest - self.relative_margin * abs(lowest)

    def __call__(
        self, scores: Sequence[float] | NDArray[np.floating], positives: NDArray[np.floating], question: str
    ) -> tuple[list[int], int]:
        """The chosen rows, and the number of rows above the limit.

        Rows are ordered by falling score, and ties by row. A random choice depends on the seed and the `question`.
        """
        values, limit = np.asarray(scores, dtype=np.float64), self.limit(positives)
        order = np.argsort(-values, kind="stable").tolist()
        passing = [row for row in order if values[row] <= limit]
        chosen = passing[: self.negatives]
        if self.choose == "random" and len(passing) > self.negatives:
            drawn = random.Random(f"{self.seed}/{question}").sample(range(len(passing)), self.negatives)
            chosen = [passing[index] for index in sorted(drawn)]
        return chosen, len(order) - len(passing)
