"""Measures have the names of ir_measures and its values without ties, and the mean over all orders with ties."""

from __future__ import annotations

from itertools import pairwise, permutations

import ir_measures
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ir_measures import Qrel, ScoredDoc, calc_aggregate
from tools.process import installed

from cerberank_training.evaluation.measures import MeasureNameError, expected_measures, parse_measures

MEASURES = parse_measures(
    "AP AP@3 AP(rel=2) RR RR@3 RR(rel=2)@10 P@1 P@5 P(rel=2)@3 R@2 R(rel=2)@10 Rprec Rprec(rel=2)"
    " Success@1 Success(rel=2)@3 nDCG nDCG@3 nDCG@10"
)
EXPONENTIAL = parse_measures("nDCG(dcg='exp-log2')@3 nDCG(dcg='exp-log2')@10")
labelled = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=5)
missed_grades = st.lists(st.integers(1, 3), max_size=3)


def by_ir_measures(grades: list[int], missed: list[int]) -> dict[str, float]:
    """The values of a list of grades in the order of their places, by ir_measures' providers (pytrec_eval, msmarco)."""
    qrels = [Qrel("q", f"d{place}", grade) for place, grade in enumerate([*grades, *missed])]
    run = [ScoredDoc("q", f"d{place}", float(-place)) for place in range(len(grades))]
    measures = [ir_measures.parse_measure(str(measure)) for measure in MEASURES]
    return {str(name): float(value) for name, value in calc_aggregate(measures, qrels, run).items()}


@given(grades=st.lists(st.integers(0, 3), min_size=1, max_size=15), missed=missed_grades)
@settings(deadline=None, max_examples=100)
def test_without_ties_values_are_those_of_ir_measures(grades: list[int], missed: list[int]) -> None:
    """Every kind, cutoff and least relevant grade, with relevant documents that were not retrieved."""
    assume(missed or any(grades))
    ranks = np.arange(len(grades))
    got = expected_measures({str(measure): measure for measure in MEASURES}, np.asarray(grades), ranks, missed)
    assert got == pytest.approx(by_ir_measures(grades, missed))


@given(rows=labelled, missed=missed_grades)
@settings(deadline=None, max_examples=60)
def test_with_ties_values_are_means_over_all_orders(rows: list[tuple[int, int]], missed: list[int]) -> None:
    """Each order that respects the ranks is equally likely."""
    labels, ranks = (np.asarray(column) for column in zip(*rows, strict=True))
    orders = [order for order in permutations(rows) if all(a[1] <= b[1] for a, b in pairwise(order))]
    measures = {str(measure): measure for measure in (*MEASURES, *EXPONENTIAL)}
    alone = [
        expected_measures(measures, np.asarray([grade for grade, _ in order]), np.arange(len(order)), missed)
        for order in orders
    ]
    for name, value in expected_measures(measures, labels, ranks, missed).items():
        assert value == pytest.approx(np.mean([each[name] for each in alone]))


def test_exponential_gains_are_those_of_gdeval() -> None:
    """ir_measures takes `dcg='exp-log2'` from TREC's program gdeval, which prints five decimal places."""
    installed("perl", "perl")
    rng = np.random.default_rng(1)
    rows = [(rng.integers(0, 4, size=12), rng.permutation(12)) for _ in range(10)]
    rows = [(labels, ranks) for labels, ranks in rows if labels.any()]
    qrels = [Qrel(str(q), str(i), int(v)) for q, (labels, _) in enumerate(rows) for i, v in enumerate(labels)]
    run = [ScoredDoc(str(q), str(i), float(-v)) for q, (_, ranks) in enumerate(rows) for i, v in enumerate(ranks)]
    measures = [ir_measures.parse_measure(str(measure)) for measure in EXPONENTIAL]
    theirs = {str(measure): value for measure, value in calc_aggregate(measures, qrels, run).items()}
    assert len(theirs) == len(EXPONENTIAL)
    for ours in EXPONENTIAL:
        assert np.mean([expected_measures({"": ours}, *row)[""] for row in rows]) == pytest.approx(
            theirs[str(ours)], abs=1e-5
        )


NAMES = (
    "AP AP@100 AP(rel=2) RR RR@10 P@1 P(rel=3)@5 R@100 R(rel=2)@1000 Rprec Success@5 nDCG nDCG@10"
    " nDCG(dcg='exp-log2')@10"
)


def test_names_are_those_of_ir_measures() -> None:
    """Each name that we print is one that ir_measures parses and prints alike."""
    measures = [str(measure) for measure in parse_measures(NAMES)]
    assert measures == [str(ir_measures.parse_measure(name)) for name in measures] == NAMES.split()


@pytest.mark.parametrize(("name", "meant"), [("MAP", "AP"), ("MRR@10", "RR@10"), ("ndcg@5", "nDCG@5"), ("P@1", "P@1")])
def test_usual_names_are_understood(name: str, meant: str) -> None:
    """The names of our own tables too."""
    assert [str(measure) for measure in parse_measures(f" {name}, Rprec")] == [meant, "Rprec"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ERR@20", "'ERR@20' is not a measure; there are: AP, RR, P, R, Rprec, Success, nDCG"),
        ("P", "'P': P needs a number of places after @"),
        ("Rprec@5", "'Rprec@5': Rprec has no number of places after @"),
        ("AP(judged_only=True)", "AP has no option 'judged_only', only 'rel'"),
        ("AP(rel=0)", "rel is a grade of 1 or more, not '0'"),
        ("nDCG(dcg='log10')", "dcg is 'log2' or 'exp-log2', not 'log10'"),
        ("AP(rel)", "expected key=value between the brackets, each key once"),
        ("MAP AP", "the measure AP is named twice"),
        (" ", "no measure is named"),
    ],
)
def test_other_names_are_refused(text: str, message: str) -> None:
    """The message names the measure and what there is."""
    with pytest.raises(MeasureNameError) as refused:
        parse_measures(text)
    assert message in str(refused.value)
