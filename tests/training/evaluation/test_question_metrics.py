"""The usual measures of a question have bounds under ties, and ranks are dense."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerberank_training.evaluation.question_metrics import USUAL, question_metrics, ranks_of

graded = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6)
grades = st.lists(st.integers(1, 3), max_size=3)


@given(rows=graded, missed=grades)
@settings(deadline=None, max_examples=80)
def test_expectation_and_bounds_are_those_of_all_orders(rows: list[tuple[int, int]], missed: list[int]) -> None:
    """The mean, least and most over every permutation that respects the ranks; 0 without a relevant document."""
    orders = [order for order in permutations(rows) if all(a[1] <= b[1] for a, b in pairwise(order))]
    places = np.arange(len(rows))
    alone = [question_metrics(np.array([label for label, _ in order]), places, missed).expected for order in orders]
    got = question_metrics(np.array([label for label, _ in rows]), np.array([rank for _, rank in rows]), missed)
    assert got.tied == sum(len({other for other, same in rows if same == rank}) > 1 for _, rank in rows)
    for name in USUAL:
        values = [each[name] for each in alone]
        assert got.expected[name] == pytest.approx(np.mean(values))
        assert got.pessimistic[name] == pytest.approx(min(values))
        assert got.optimistic[name] == pytest.approx(max(values))


@given(rows=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([-1.0, 0.0, 0.5, 0.5 + 1e-12])), max_size=12))
def test_ranks_are_dense_and_go_by_stage_before_score(rows: list[tuple[int, float]]) -> None:
    """The rank is the number of distinct (stage, score) pairs that are better."""
    ranks = ranks_of(np.array([score for _, score in rows]), np.array([stage for stage, _ in rows], dtype=int))
    assert ranks.tolist() == [len({other for other in rows if other > row}) for row in rows]


def test_nan_has_no_rank() -> None:
    """NaN is an error, because it compares false with everything."""
    with pytest.raises(ValueError, match="NaN"):
        ranks_of(np.array([0.5, np.nan]))
