"""Scores that a question brings along: the engine does not run these pairs, but they take part in every drop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Scores


@dataclass(frozen=True, slots=True)
class KnownScores:
    """What is known of m of a question's pairs."""

    rows: NDArray[np.int64]
    trace: Scores
    """Shape [m, stages]."""
    heads: Scores | None
    """Shape [m, k]."""
