"""MAP, MRR, P@1, nDCG@5, nDCG@10, P@20 and nDCG@20 of one question, exact under ties.

Some data sets list positives first, so that a stable sort of tied scores would use the labels. Therefore every metric
is the expectation over random orders of ties, in closed form, with pessimistic and optimistic values as bounds. Labels
may be grades: nDCG adds grades up, as trec_eval does, and for other metrics a label above 0 is a positive. Relevant
documents that are not candidates count as not found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cerberank_training.evaluation.measures import Measure, expected_measures, parse_measure

TITLES = {
    "map": "MAP",
    "mrr": "MRR",
    "p@1": "P@1",
    "ndcg@5": "nDCG@5",
    "ndcg@10": "nDCG@10",
    "p@20": "P@20",
    "ndcg@20": "nDCG@20",
}
METRICS = tuple(TITLES)
USUAL_DEPTH = 10
"""The depth up to which a metric is shown for any number of candidates."""
USUAL = {name: parse_measure(title) for name, title in TITLES.items()}
Labels = NDArray[np.integer]


def usual_columns(candidates: int) -> dict[str, str]:
    """The titles without metrics of more places than the largest question has candidates, and than USUAL_DEPTH.

    >>> "p@20" in usual_columns(5), "ndcg@10" in usual_columns(5), usual_columns(20) == TITLES
    (False, True, True)
    """
    deepest = max(USUAL_DEPTH, candidates)
    return {name: title for name, title in TITLES.items() if int(name.partition("@")[2] or 0) <= deepest}


@dataclass(frozen=True, slots=True)
class QuestionMetrics:
    """The metrics of METRICS, and further measures by their names, for one question (0 to 1)."""

    expected: dict[str, float]
    pessimistic: dict[str, float]
    optimistic: dict[str, float]
    tied: int
    """The number of candidates that are tied with a candidate of another label."""


def ranks_of(scores: NDArray[np.floating], stages: NDArray[np.integer] | None = None) -> NDArray[np.int64]:
    """Dense ranks [n], where 0 is best, by falling score. Equal scores share a rank.

    With `stages` [n], a candidate that reached a later stage ranks above all others. Raises ValueError for a score that
    is NaN.

    >>> ranks_of(np.array([0.2, 0.9, 0.2])).tolist()
    [1, 0, 1]
    >>> ranks_of(np.array([0.2, 0.9, 0.2, 0.1]), np.array([1, 0, 1, 0])).tolist()
    [0, 1, 0, 2]
    """
    if np.isnan(scores).any():
        raise ValueError("a score is not a number (NaN)")
    reached = np.zeros(len(scores), dtype=np.int64) if stages is None else stages
    best_first = np.lexsort((-scores, -reached))
    changes = (np.diff(scores[best_first]) != 0) | (np.diff(reached[best_first]) != 0)
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[best_first] = np.concatenate([[0], np.cumsum(changes)])[: len(scores)]
    return ranks


def question_metrics(
    labels: Labels, ranks: NDArray[np.integer], missed: Sequence[int] = (), measures: Sequence[Measure] = ()
) -> QuestionMetrics:
    """The metrics, and `measures` by name, of `labels[n]` (0 or a grade) in the order of `ranks[n]`.

    Rank 0 is best, and equal ranks are ties. `missed` are the grades (1 or more) of relevant documents that are not
    candidates. Without a relevant document all values are 0, as in `trec_eval -c`.

    >>> all_tied = question_metrics(np.array([1, 0]), np.array([0, 0]))
    >>> all_tied.expected["map"], all_tied.pessimistic["map"], all_tied.optimistic["map"]
    (0.75, 0.5, 1.0)
    """
    n = np.arange(len(labels))
    wanted = USUAL | {str(measure): measure for measure in measures}
    kinds = Counter(rank for rank, _ in set(zip(ranks.tolist(), labels.tolist(), strict=True)))

    def values(order: NDArray[np.integer]) -> dict[str, float]:
        return expected_measures(wanted, labels, order, missed)

    return QuestionMetrics(
        expected=values(ranks),
        pessimistic=values(_broken(ranks, labels, n)),
        optimistic=values(_broken(ranks, -labels, n)),
        tied=sum(kinds[rank] > 1 for rank in ranks.tolist()),
    )


def expected_metrics(
    labels: Labels, ranks: NDArray[np.integer], missed: Sequence[int] = (), names: Sequence[str] = METRICS
) -> dict[str, float]:
    """Only `question_metrics(labels, ranks, missed).expected` of `names`, for searches that call it very often."""
    return expected_measures({name: USUAL[name] for name in names}, labels, ranks, missed)


def _broken(ranks: NDArray[np.integer], first: Labels, second: Labels) -> NDArray[np.int64]:
    """Ranks without ties: equal ranks are ordered by `first` and then by `second`, ascending."""
    places = np.empty(len(ranks), dtype=np.int64)
    places[np.lexsort((second, first, ranks))] = np.arange(len(ranks))
    return places
