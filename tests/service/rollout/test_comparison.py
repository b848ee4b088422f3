from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.rollout.comparison import Comparison, ShadowFigures, compare, rank_biased_overlap

PAIR_OF_ORDERS = st.integers(1, 30).flatmap(lambda n: st.tuples(st.permutations(range(n)), st.permutations(range(n))))


def plain_overlap(first: list[int], second: list[int], p: float) -> float:
    """The definition, with sets."""
    n = len(first)
    agreement = [len(set(first[:d]) & set(second[:d])) / d for d in range(1, n + 1)]
    return agreement[-1] * p**n + (1 - p) / p * sum(a * p**d for d, a in enumerate(agreement, 1))


@given(orders=PAIR_OF_ORDERS, persistence=st.floats(0.1, 0.99))
def test_rank_biased_overlap_is_what_its_definition_says(
    orders: tuple[list[int], list[int]], persistence: float
) -> None:
    """Against sets; symmetric, within 0..1, and 1 for the same order."""
    first, second = map(np.asarray, orders)
    found = rank_biased_overlap(first, second, persistence=persistence)
    assert found == pytest.approx(plain_overlap(*orders, persistence))
    assert found == pytest.approx(rank_biased_overlap(second, first, persistence=persistence))
    assert 0.0 <= found <= 1.0
    assert rank_biased_overlap(first, first, persistence=persistence) == pytest.approx(1.0)


def test_a_change_at_the_top_weighs_more_than_one_below() -> None:
    """That is what the measure is for."""
    order = np.arange(20)
    top, below = order.copy(), order.copy()
    top[:2], below[-2:] = [1, 0], [19, 18]
    assert rank_biased_overlap(order, top) < rank_biased_overlap(order, below) < 1.0


def test_flip_and_shift() -> None:
    """Another first candidate is a flip; the shift is the mean absolute difference."""
    scores, other = np.asarray([0.9, 0.5, 0.1]), np.asarray([0.5, 0.9, 0.1])
    same = compare(np.asarray([0, 1, 2]), scores, np.asarray([0, 2, 1]), other)
    assert not same.flipped
    assert same.shift == pytest.approx(0.8 / 3)
    assert compare(np.asarray([0, 1, 2]), scores, np.asarray([1, 0, 2]), other).flipped


def test_the_figures_are_described_by_means() -> None:
    """Null before the first question."""
    figures = ShadowFigures("1", "2")
    assert figures.describe()["latency_ratio"] is None
    for number in range(4):
        compared = Comparison(flipped=number == 0, overlap=0.5, shift=0.1)
        figures.add(compared, stable_seconds=1.0, shadow_seconds=2.0)
    described = figures.describe()
    assert (described["stable"], described["shadow"], described["questions"], described["flips"]) == ("1", "2", 4, 1)
    assert (described["flip_percent"], described["rank_biased_overlap"], described["latency_ratio"]) == (25.0, 0.5, 2.0)
    assert described["score_shift"] == pytest.approx(0.1)
