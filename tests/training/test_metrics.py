from __future__ import annotations

from itertools import pairwise, permutations
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerberank_training.metrics import METRICS, question_metrics, ranks_of

cases = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=6).filter(
    lambda rows: any(label for label, _ in rows)
)


def brute_force(labels: list[int]) -> dict[str, float]:
    """Metrics of one order without ties, by their definitions."""
    places = [place for place, label in enumerate(labels, start=1) if label]
    ideal = sum(1 / log2(place + 1) for place in range(1, min(len(places), 10) + 1))
    return {
        "map": sum(hit / place for hit, place in enumerate(places, start=1)) / len(places),
        "mrr": 1 / places[0],
        "p@1": float(labels[0]),
        "ndcg@10": sum(1 / log2(place + 1) for place in places if place <= 10) / ideal,
        "p@20": sum(place <= 20 for place in places) / 20,
    }


@given(rows=cases)
@settings(deadline=None, max_examples=80)
def test_expectation_and_bounds_equal_all_tie_breaks(rows: list[tuple[int, int]]) -> None:
    """Closed form against the mean, least and most over every permutation that respects the ranks."""
    orders = [order for order in permutations(rows) if all(a[1] <= b[1] for a, b in pairwise(order))]
    all_values = [brute_force([label for label, _ in order]) for order in orders]
    got = question_metrics(np.array([label for label, _ in rows]), np.array([rank for _, rank in rows]))
    for name in METRICS:
        values = [value[name] for value in all_values]
        assert got.expected[name] == pytest.approx(np.mean(values))
        assert got.pessimistic[name] == pytest.approx(min(values))
        assert got.optimistic[name] == pytest.approx(max(values))


def test_deep_lists_count_to_ten_and_twenty() -> None:
    """A positive at place 11 counts for P@20 and not for nDCG@10; one at 21 for neither."""
    labels = np.zeros(25, dtype=int)
    labels[[10, 20]] = 1
    got = question_metrics(labels, np.arange(25)).expected
    assert got["ndcg@10"] == 0
    assert got["p@20"] == pytest.approx(1 / 20)


def test_ranks_go_by_stage_before_score() -> None:
    """A survivor ranks above a dropped candidate with a higher score; equal pairs tie."""
    assert ranks_of(np.array([0, 1, 1, 0]), np.array([0.9, 0.1, 0.1, 0.95])).tolist() == [2, 0, 0, 1]


def test_no_positive_no_metric() -> None:
    """Neither 0 nor 1 would be right."""
    with pytest.raises(ValueError, match="positive"):
        question_metrics(np.array([0, 0]), np.array([0, 1]))
