"""Cached scores of some of a question's candidates: the engine does not run them, but every drop counts them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Scores


@dataclass(frozen=True, slots=True)
class KnownScores:
    """The cached scores of m of a question's candidates, each of one pair; `rows` are these candidates."""

    rows: NDArray[np.int64]
    trace: Scores
    """Scores by stage, shape [m, stages]."""
    heads: Scores | None
    """Scores of the k heads, shape [m, k]; None where the model gives no scores by head."""
