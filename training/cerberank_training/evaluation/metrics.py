"""MAP, MRR, P@1, nDCG@10 and P@20 of one question, exact under ties.

Candidates of a data set come in document order, some with the positives first, so that a stable sort
over tied scores leaks the labels. Every metric here is the expectation over a random order within
ties, in closed form; pessimistic and optimistic values bound it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

METRICS = ("map", "mrr", "p@1", "ndcg@10", "p@20")
Labels = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class QuestionMetrics:
    """Each metric of METRICS for one question, in 0..1."""

    expected: dict[str, float]
    pessimistic: dict[str, float]
    optimistic: dict[str, float]
    tied: int
    """The number of candidates that are tied with a candidate of a different label."""


def ranks_of(stages: NDArray[np.integer], scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Dense ranks [n], 0 best: by stage reached, then by score there; equal pairs share a rank.

    Raises ValueError for a score that is not a number, which no order is defined for.

    >>> ranks_of(np.array([1, 0, 1, 0]), np.array([0.2, 0.9, 0.2, 0.1])).tolist()
    [0, 1, 0, 2]
    """
    if np.isnan(scores).any():
        raise ValueError("a score is not a number (NaN)")
    best_first = np.lexsort((-scores, -stages))
    changes = (np.diff(scores[best_first]) != 0) | (np.diff(stages[best_first]) != 0)
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[best_first] = np.concatenate([[0], np.cumsum(changes)])[: len(scores)]
    return ranks


def question_metrics(labels: Labels, ranks: NDArray[np.integer]) -> QuestionMetrics:
    """Metrics of `labels[n]` (0 or 1) ordered by `ranks[n]` (0 best, equal = tied).

    Raises ValueError without a positive: no metric is defined then.

    >>> all_tied = question_metrics(np.array([1, 0]), np.array([0, 0]))
    >>> all_tied.expected["map"], all_tied.pessimistic["map"], all_tied.optimistic["map"]
    (0.75, 0.5, 1.0)
    """
    if not labels.any():
        raise ValueError("a question without a positive candidate has no metrics")
    n = np.arange(len(labels))
    groups = _tie_groups(labels, ranks)
    return QuestionMetrics(
        expected=_metrics(groups),
        pessimistic=_metrics(_tie_groups(labels, _broken(ranks, labels, n))),
        optimistic=_metrics(_tie_groups(labels, _broken(ranks, -labels, n))),
        tied=sum(size for size, positives in groups if 0 < positives < size),
    )


def expected_metrics(labels: Labels, ranks: NDArray[np.integer]) -> dict[str, float]:
    """`question_metrics(labels, ranks).expected` alone, for searches that call it very often."""
    return _metrics(_tie_groups(labels, ranks))


def unanswerable_metrics() -> QuestionMetrics:
    """The metrics of a question without a positive in the `raw` subset: all 0, as in `trec_eval -c`."""
    zeros = dict.fromkeys(METRICS, 0.0)
    return QuestionMetrics(expected=zeros, pessimistic=zeros, optimistic=zeros, tied=0)


def _broken(ranks: NDArray[np.integer], first: Labels, second: Labels) -> NDArray[np.int64]:
    """Break ties: ranks by rank, then `first`, then `second`, ascending."""
    places = np.empty(len(ranks), dtype=np.int64)
    places[np.lexsort((second, first, ranks))] = np.arange(len(ranks))
    return places


def _tie_groups(labels: Labels, ranks: NDArray[np.integer]) -> list[tuple[int, int]]:
    """(size, positives) of each set of tied candidates, best first."""
    dense = np.unique(ranks, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(dense)
    positives = np.bincount(dense, weights=labels).astype(np.int64)
    return list(zip(sizes.tolist(), positives.tolist(), strict=True))


def _metrics(groups: list[tuple[int, int]]) -> dict[str, float]:
    """Expectations over random order within each group of (size, positives)."""
    total = sum(positives for _, positives in groups)
    ideal = sum(_discount(place) for place in range(1, min(total, 10) + 1))
    precision = reciprocal = gain = top20 = 0.0
    place = seen = 0
    for size, positives in groups:
        for i in range(1, size + 1) if positives else ():
            share = positives / size
            # The expected number of the group's positives in the i - 1 places before a positive at place i.
            before = (i - 1) * (positives - 1) / (size - 1) if size > 1 else 0.0
            precision += share * (seen + 1 + before) / (place + i)
            if seen == 0 and size - i >= positives - 1:
                reciprocal += comb(size - i, positives - 1) / comb(size, positives) / (place + i)
            gain += share * _discount(place + i) if place + i <= 10 else 0.0
            top20 += share if place + i <= 20 else 0.0
        place += size
        seen += positives
    first_size, first_positives = groups[0]
    return {
        "map": precision / total,
        "mrr": reciprocal,
        "p@1": first_positives / first_size,
        "ndcg@10": gain / ideal,
        "p@20": top20 / 20,
    }


def _discount(place: int) -> float:
    return float(1.0 / np.log2(place + 1))
