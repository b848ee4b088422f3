"""Quality indicators that need no relevance labels: head agreement and top scores. They show a shift of the data."""

from __future__ import annotations

import numpy as np

from cerberank_models.backends.contract import Scores
from cerberank_service.call import RankAnswer


def heads_agree(heads: Scores | None) -> bool | None:
    """Whether all heads rank the same candidate first; None for fewer than two heads or scored candidates.

    `heads` has shape [n, k], with NaN for candidates that no head scored. A tie does not count as a disagreement.
    """
    if heads is None:
        return None
    seen = heads[~np.isnan(heads[:, 0])]
    if min(seen.shape) < 2:
        return None
    return bool((seen == seen.max(axis=0)).all(axis=1).any())


def top_score(answer: RankAnswer) -> float | None:
    """The score of the first candidate; None when the deadline came before any score."""
    score = float(answer.scores[answer.order[0]])
    return None if np.isnan(score) else score
