from __future__ import annotations

from itertools import pairwise, permutations
from math import log2

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ir_measures import AP, RR, P, Qrel, ScoredDoc, calc_aggregate, nDCG

from cerberank_training.evaluation.question_metrics import METRICS, expected_metrics, question_metrics, ranks_of

MEASURES = dict(zip(METRICS, (AP, RR, P @ 1, nDCG @ 5, nDCG @ 10, P @ 20, nDCG @ 20), strict=True))
"""The same metrics as ir-measures names them."""

graded = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6)
grades = st.lists(st.integers(1, 3), max_size=3)


def dcg(labels: list[int], depth: int) -> float:
    return sum(label / log2(place + 1) for place, label in enumerate(labels[:depth], start=1))


def brute_force(labels: list[int], missed: list[int]) -> dict[str, float]:
    """Metrics of one order without ties, by their definitions."""
    places = [place for place, label in enumerate(labels, start=1) if label]
    ideal = sorted([*labels, *missed], reverse=True)
    return {
        "map": sum(hit / place for hit, place in enumerate(places, start=1)) / sum(label > 0 for label in ideal),
        "mrr": 1 / places[0] if places else 0.0,
        "p@1": float(labels[0] > 0),
        "ndcg@5": dcg(labels, 5) / dcg(ideal, 5),
        "ndcg@10": dcg(labels, 10) / dcg(ideal, 10),
        "p@20": sum(place <= 20 for place in places) / 20,
        "ndcg@20": dcg(labels, 20) / dcg(ideal, 20),
    }


@given(rows=graded, missed=grades)
@settings(deadline=None, max_examples=80)
def test_expectation_and_bounds_equal_all_tie_breaks(rows: list[tuple[int, int]], missed: list[int]) -> None:
    """Closed form against the mean, least and most over every permutation that respects the ranks."""
    assume(missed or any(label for label, _ in rows))
    orders = [order for order in permutations(rows) if all(a[1] <= b[1] for a, b in pairwise(order))]
    all_values = [brute_force([label for label, _ in order], missed) for order in orders]
    got = question_metrics(np.array([label for label, _ in rows]), np.array([rank for _, rank in rows]), missed)
    assert got.tied == sum(len({other for other, same in rows if same == rank}) > 1 for _, rank in rows)
    for name in METRICS:
        values = [value[name] for value in all_values]
        assert got.expected[name] == pytest.approx(np.mean(values))
        assert got.pessimistic[name] == pytest.approx(min(values))
        assert got.optimistic[name] == pytest.approx(max(values))


@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=40), missed=grades, data=st.data())
@settings(deadline=None, max_examples=80)
def test_without_ties_metrics_are_those_of_trec_eval(labels: list[int], missed: list[int], data: st.DataObject) -> None:
    """Every metric against ir-measures (pytrec_eval), on lists of up to 40 graded candidates of a run that has missed
    some relevant documents; bounds meet the expectation.
    """
    assume(missed or any(labels))
    scores = data.draw(st.permutations(range(len(labels))))
    expected = calc_aggregate(
        MEASURES.values(),
        [Qrel("q", str(index), label) for index, label in enumerate([*labels, *missed])],
        [ScoredDoc("q", str(index), float(score)) for index, score in enumerate(scores)],
    )
    ranks = ranks_of(np.zeros(len(labels), dtype=int), np.asarray(scores, dtype=float))
    got = question_metrics(np.asarray(labels), ranks, missed)
    for name, measure in MEASURES.items():
        assert got.expected[name] == pytest.approx(expected[measure])
        assert got.pessimistic[name] == got.optimistic[name] == pytest.approx(expected[measure])
    assert expected_metrics(np.asarray(labels), ranks, missed) == got.expected


@given(rows=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([-1.0, 0.0, 0.5, 0.5 + 1e-12])), max_size=12))
def test_ranks_are_dense_and_follow_the_pairs(rows: list[tuple[int, float]]) -> None:
    """The rank is the number of distinct (stage, score) pairs that are better."""
    ranks = ranks_of(np.array([stage for stage, _ in rows], dtype=int), np.array([score for _, score in rows]))
    assert ranks.tolist() == [len({other for other in rows if other > row}) for row in rows]


def test_nan_has_no_rank() -> None:
    """NaN is an error, because it compares false with everything."""
    with pytest.raises(ValueError, match="NaN"):
        ranks_of(np.array([0, 0]), np.array([0.5, np.nan]))


def test_deep_lists_count_to_ten_and_twenty() -> None:
    """A positive at place 11 counts for P@20 and nDCG@20 and not for nDCG@10; one at 21 for none."""
    labels = np.zeros(25, dtype=int)
    labels[[10, 20]] = 1
    got = question_metrics(labels, np.arange(25)).expected
    assert got["ndcg@10"] == 0
    assert got["p@20"] == pytest.approx(1 / 20)
    assert got["ndcg@20"] == pytest.approx(1 / log2(12) / (1 + 1 / log2(3)))


@given(rows=graded, seed=st.integers(0, 5))
def test_only_ndcg_tells_grades_apart(rows: list[tuple[int, int]], seed: int) -> None:
    """With 0 and 1 in the place of grades every other metric stays; the order of pairs does not matter."""
    assume(any(label for label, _ in rows))
    labels, ranks = (np.asarray(column) for column in zip(*rows, strict=True))
    order = np.random.default_rng(seed).permutation(len(rows))
    values, binary = expected_metrics(labels, ranks), expected_metrics((labels > 0).astype(int), ranks)
    assert expected_metrics(labels[order], ranks[order]) == pytest.approx(values)
    assert all(values[name] == binary[name] for name in METRICS if not name.startswith("ndcg"))


def test_a_better_grade_first_is_a_better_ndcg() -> None:
    """Gains are the grades themselves, as trec_eval takes them: 3 before 1 is perfect, 1 before 3 is less."""
    d = 1 / log2(3)
    values = [expected_metrics(np.array([3, 1]), np.array(ranks))["ndcg@20"] for ranks in ([0, 1], [1, 0])]
    assert values == pytest.approx([1.0, (1 + 3 * d) / (3 + d)])


def test_ranks_go_by_stage_before_score() -> None:
    """A survivor ranks above a dropped candidate with a higher score; equal pairs tie."""
    assert ranks_of(np.array([0, 1, 1, 0]), np.array([0.9, 0.1, 0.1, 0.95])).tolist() == [2, 0, 0, 1]


def test_no_positive_no_metric() -> None:
    """A question without a positive is an error, because its metrics are undefined."""
    with pytest.raises(ValueError, match="positive"):
        question_metrics(np.array([0, 0]), np.array([0, 1]))
