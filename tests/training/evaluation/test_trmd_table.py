"""TRMD's table: its figures and tests against NumPy and SciPy, and what is left out while runs are missing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from cerberank_training.evaluation.metrics import METRICS
from cerberank_training.evaluation.per_question import QuestionRecord, RankingRecord, Records
from cerberank_training.evaluation.trmd_table import COMPARISONS, ROWS, comparisons, trmd_content, trmd_table
from cerberank_training.students.text_rankers import SYSTEMS


def records(values: NDArray[np.float64]) -> Records:
    """Every metric of question i is `values[i]`; a question more has no positive."""
    answered = {
        f"q{index:02}": QuestionRecord(
            id=f"q{index:02}",
            candidates="",
            labels=(1, 0, 0),
            rankings={"final": RankingRecord(metrics=dict.fromkeys(METRICS, float(value)), ranks=(0, 1, 2))},
        )
        for index, value in enumerate(values)
    }
    nothing = RankingRecord(metrics={}, ranks=(0,))
    return answered | {"none": QuestionRecord(id="none", candidates="", labels=(0,), rankings={"final": nothing})}


def test_rows_are_systems_after_their_teachers() -> None:
    """Every row is a system of `pairwise`; a taught one comes after monoBERT and the bi-encoder of its kind."""
    order = list(ROWS)
    assert set(order) <= set(SYSTEMS)
    for name in order:
        if SYSTEMS[name].taught:
            teachers = ("mono", SYSTEMS[name].token_ranker)
            assert all(teacher in order[: order.index(name)] for teacher in teachers)
    assert {name for pair in COMPARISONS for name in pair} <= set(order)


def test_figures_and_tests_are_those_of_numpy_and_scipy() -> None:
    """Means by seed; both tests on each question's mean over the common seeds, of which there are two of three."""
    rng = np.random.default_rng(0)
    taught, alone = ({seed: rng.random(30) for seed in seeds} for seeds in ((1, 2, 3), (1, 3)))
    results = {
        "tr-twin": {seed: records(values) for seed, values in alone.items()},
        "trmd-twin": {seed: records(values) for seed, values in taught.items()},
    }
    (pair,) = comparisons(results)
    assert (pair.ours, pair.theirs, pair.seeds) == ("trmd-twin", "tr-twin", (1, 3))
    ours, theirs = (taught[1] + taught[3]) / 2, (alone[1] + alone[3]) / 2
    got = pair.metrics["map"]
    assert got.difference == pytest.approx(100 * (ours.mean() - theirs.mean()))
    assert got.student_p_value == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    assert got.p_value == pytest.approx(stats.wilcoxon(ours, theirs).pvalue)
    content = trmd_content(results)
    assert (content["questions"], content["pairs"]) == (30, 90)
    figures = content["systems"]["trmd-twin"]
    assert list(figures) == ["1", "2", "3"]
    assert figures["2"] == pytest.approx(dict.fromkeys(METRICS, 100 * taught[2].mean()))
    text = trmd_table(results)
    each = ", ".join(f"{100 * taught[seed].mean():.1f}" for seed in (1, 2, 3))
    assert f"| TRMD-TwinBERT | 3 | {100 * np.mean(list(taught.values())):.1f} ({each}) |" in text
    assert f"| MAP | {got.difference:+.2f} | {got.student_p_value:.2g} | {got.p_value:.2g} |" in text


def test_missing_runs_leave_comparisons_out() -> None:
    """Without a common seed there is no comparison, and without a run there is an empty table."""
    values = np.array([0.5, 1.0])
    apart = {"trmd-twin": {1: records(values)}, "tr-twin": {2: records(values)}}
    assert comparisons(apart) == []
    assert "against" not in trmd_table(apart)
    assert trmd_content({}) == {"questions": 0, "pairs": 0, "systems": {}, "comparisons": []}
