from __future__ import annotations

from itertools import product
from math import gamma, pi, sqrt

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from cerberank_training.evaluation.paired_tests import compare, compare_metric, spearman
from cerberank_training.evaluation.per_question import QuestionRecord, RankingRecord

values = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20)


@given(differences=st.lists(st.integers(-40, 40).filter(bool), min_size=1, max_size=9, unique_by=abs))
def test_the_p_value_is_that_of_all_sign_flips(differences: list[int]) -> None:
    """Without ties: the share of the 2^n sign assignments whose rank sum is as extreme, both sides."""
    d = np.asarray(differences) / 40
    ranks = np.abs(d).argsort().argsort() + 1
    observed = ranks[d > 0].sum()
    sums = np.asarray([(ranks * signs).sum() for signs in product((0, 1), repeat=len(d))])
    p = min(1.0, 2 * min((sums >= observed).mean(), (sums <= observed).mean()))
    assert compare_metric(d, np.zeros(len(d))).p_value == pytest.approx(p)


@given(rows=values)
@settings(max_examples=25)
def test_swapping_the_sides_swaps_wins_and_losses(rows: list[tuple[float, float]]) -> None:
    """Only the sign changes: same p, negated difference, every question counted once."""
    a, b = (np.asarray(column) for column in zip(*rows, strict=True))
    forth, back = compare_metric(a, b), compare_metric(b, a)
    assert (forth.wins, forth.ties, forth.losses) == (back.losses, back.ties, back.wins)
    assert forth.wins + forth.ties + forth.losses == len(rows)
    assert forth.difference == pytest.approx(-back.difference)
    assert forth.p_value == pytest.approx(back.p_value)


@given(rows=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=2, max_size=20))
@settings(max_examples=10)
def test_students_p_value_is_that_of_the_t_distribution(rows: list[tuple[int, int]]) -> None:
    """Mean over standard error, both tails of t with n - 1 degrees of freedom, by integrating its density."""
    a, b = (np.asarray(column) / 8 for column in zip(*rows, strict=True))
    n, d = len(rows), a - b
    assume(np.ptp(d) > 0)
    t = abs(d.mean()) / (d.std(ddof=1) / sqrt(n))
    constant = gamma(n / 2) / (sqrt((n - 1) * pi) * gamma((n - 1) / 2))
    inner, _ = quad(lambda x: constant * (1 + x * x / (n - 1)) ** (-n / 2), 0, t)
    assert compare_metric(a, b).student_p_value == pytest.approx(1 - 2 * inner, abs=1e-6)
    assert compare_metric(b, a).student_p_value == pytest.approx(1 - 2 * inner, abs=1e-6)


def test_student_without_a_spread() -> None:
    """One question proves nothing; the same difference everywhere has an infinite t, none an undefined one."""
    values = [compare_metric(np.full(n, a), np.zeros(n)).student_p_value for n, a in ((1, 0.5), (3, 0.5), (3, 0.0))]
    assert values == [1.0, 0.0, 1.0]


def test_equal_values_are_no_evidence() -> None:
    """The p-value is 1 where the test is undefined, and differences in the last bit do not count."""
    a = np.array([0.5, 1 / 3, 0.1 + 0.2])
    assert compare_metric(a, np.array([0.5, 1 / 3, 0.3])).p_value == 1.0


@given(places=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_spearman_is_the_correlation_of_mean_ranks(places: list[tuple[int, int]]) -> None:
    """Against Pearson's formula on ranks that ties share."""
    a, b = (np.asarray(column) for column in zip(*places, strict=True))
    assume(len(set(a.tolist())) > 1 and len(set(b.tolist())) > 1)

    def mean_ranks(x: np.ndarray) -> np.ndarray:
        return np.asarray([(x < value).sum() + ((x == value).sum() + 1) / 2 for value in x])

    expected = np.corrcoef(mean_ranks(a), mean_ranks(b))[0, 1]
    got = spearman(a, b)
    assert got[0] == pytest.approx(expected, abs=1e-9)
    assert 0.0 <= got[1] <= 1.0


def test_a_question_counts_as_significant_by_its_own_p_value() -> None:
    """Five candidates in the same order are chance less than once in twenty times, four are not, whatever t says."""
    long, short = record("long", (1, 0, 0, 0, 0), (0, 1, 2, 3, 4)), record("short", (1, 0, 0), (0, 1, 2))
    other = record("short", (1, 0, 0), (0, 2, 1))
    got = compare({"long": long, "short": short}, {"long": long, "short": other})
    assert (got.spearman, got.spearman_questions, got.spearman_significant) == (0.75, 2, 1)
    four = {"four": record("four", (1, 0, 0, 0), (0, 1, 2, 3))}
    assert compare(four, four).spearman_significant == 0
    swapped = {"long": record("long", (1, 0, 0, 0, 0), (1, 0, 2, 3, 4))}
    significant = [compare({"long": long}, swapped, level=level).spearman_significant for level in (0.05, 0.01)]
    assert significant == [1, 0]  # p is .037


def test_an_order_with_one_place_correlates_with_nothing() -> None:
    """A question with one candidate, or all tied, is left out rather than counted as 0 or NaN."""
    assert spearman(np.array([0]), np.array([0])) is None
    assert spearman(np.array([0, 0]), np.array([0, 1])) is None


def record(identifier: str, labels: tuple[int, ...], ranks: tuple[int, ...]) -> QuestionRecord:
    rankings = {"final": RankingRecord(metrics={}, ranks=ranks)}
    return QuestionRecord(id=identifier, candidates="same", labels=labels, rankings=rankings)


def test_subsets_choose_the_questions() -> None:
    """`raw` counts a question without a positive as a tie at 0; strict leaves out one without a negative."""
    first = {
        "both": record("both", (1, 0), (0, 1)),
        "positive": record("positive", (1, 1), (0, 1)),
        "none": record("none", (0, 0), (0, 1)),
    }
    second = {**first, "both": record("both", (1, 0), (1, 0))}
    by_subset = {name: compare(first, second, subset=name) for name in ("raw", "clean", "strict")}
    assert [by_subset[name].questions for name in ("raw", "clean", "strict")] == [3, 2, 1]
    assert by_subset["raw"].metrics["map"].mean_a == pytest.approx(200 / 3)
    assert by_subset["strict"].metrics["map"].difference == pytest.approx(50.0)
    assert by_subset["strict"].spearman == -1.0
    missed = first["none"].model_copy(update={"missed": (2,)})
    assert compare({"none": missed}, {"none": missed}).questions == 1
    with pytest.raises(ValueError, match="no question is in the subset 'clean'"):
        compare({"none": first["none"]}, {"none": first["none"]})
