"""Cached scores of some of a question's pairs: the engine does not run these pairs, but every drop counts them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Scores


@dataclass(frozen=True, slots=True)
class KnownScores:
    """The cached scores of m of a question's pairs; `rows` are these pairs."""

    rows: NDArray[np.int64]
    trace: Scores
    """Scores by stage, shape [m, stages]."""
    heads: Scores | None
    """Scores of the k heads, shape [m, k]; None where the model gives no scores by head."""
