"""A table's cells are the figures and tests of `compare`, and the correction is over all of the table."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.evaluation.systems.systems import write_system

from cerberank_training.evaluation.measures import parse_measure
from cerberank_training.evaluation.paired_tests import compare, compare_metric
from cerberank_training.evaluation.per_question import QuestionRecord, RankingRecord, write_record
from cerberank_training.evaluation.systems.comparison import compare_systems, holm
from cerberank_training.evaluation.systems.folders import Systems, read_systems

SETS = {"long": 40, "short": 12}


@pytest.fixture
def systems(tmp_path: Path) -> Systems:
    """A baseline, one that is better, and one that is like it."""
    noises = {"base": 1.5, "good": 0.5, "same": 1.5}
    folders = [
        write_system(tmp_path / name, noise, SETS, seed=seed) for seed, (name, noise) in enumerate(noises.items())
    ]
    return read_systems(folders)


def test_cells_are_those_of_compare(systems: Systems) -> None:
    """Means, questions, and both uncorrected p-values; the mean over sets counts each set the same."""
    result = compare_systems(systems, parse_measure("nDCG@10"), baseline="base")
    for name, count in SETS.items():
        cell = result.cells["good"][name]
        pair = compare(systems["good"][name][0], systems["base"][name][0]).metrics["ndcg@10"]
        test = cell.against.test
        assert (test.mean_a, test.p_value, test.student_p_value) == pytest.approx(
            (pair.mean_a, pair.p_value, pair.student_p_value)
        )
        assert (cell.mean, cell.questions, cell.runs, cell.spread) == (test.mean_a, count, 1, None)
        assert result.cells["base"][name].against is None
    assert result.means["good"] == pytest.approx(fmean(cell.mean for cell in result.cells["good"].values()))


def test_the_correction_is_over_the_table(systems: Systems) -> None:
    """Holm's of all p-values of a measure, each kind of test by itself."""
    result = compare_systems(systems, parse_measure("AP"), baseline="base")
    cells = [cell.against for name in ("good", "same") for cell in result.cells[name].values()]
    tests = [cell for cell in cells if cell is not None]
    assert result.tests == len(tests) == 4
    assert [cell.student_holm for cell in tests] == holm([cell.test.student_p_value for cell in tests])
    assert [cell.wilcoxon_holm for cell in tests] == holm([cell.test.p_value for cell in tests])


def test_a_question_counts_with_its_mean_over_runs(tmp_path: Path) -> None:
    """Three runs against two, by hand: the mean, the runs' spread, and the test over questions."""
    runs = [write_system(tmp_path / "ours" / str(seed), 0.5, {"long": 40}, seed=seed) for seed in (1, 2, 3)]
    others = [write_system(tmp_path / "base" / str(seed), 1.5, {"long": 40}, seed=seed) for seed in (4, 5)]
    systems = read_systems([tmp_path / "ours", tmp_path / "base"])
    cells = compare_systems(systems, parse_measure("AP"), baseline="base").cells
    values = [
        np.asarray(
            [[record.rankings["final"].metrics["map"] for record in run.values()] for run in systems[name]["long"]]
        )
        for name in ("ours", "base")
    ]
    ours, expected = cells["ours"]["long"], compare_metric(*(each.mean(axis=0) for each in values))
    assert [len(values[0]), len(values[1])] == [len(runs), len(others)] == [ours.runs, cells["base"]["long"].runs]
    assert ours.spread == pytest.approx(100 * stdev(values[0].mean(axis=1).tolist()))
    assert ours.against.test == expected
    assert ours.mean == pytest.approx(expected.mean_a)


def test_cells_are_over_the_questions_that_every_run_has(tmp_path: Path) -> None:
    """A question whose documents have no negative in one system's run is in no cell of the strict subset."""
    for name, labels in {"one": ([1, 0], [0, 1]), "two": ([0, 1], [1, 1])}.items():
        (tmp_path / name).mkdir()
        with (tmp_path / name / "set.jsonl").open("wb") as file:
            for number, each in enumerate(labels):
                rankings = {"final": RankingRecord(metrics={}, ranks=(0, 1))}
                write_record(
                    file,
                    QuestionRecord(
                        id=str(number), candidates=name, labels=tuple(each), judgements="j", rankings=rankings
                    ),
                )
    systems = read_systems([tmp_path / "one", tmp_path / "two"])
    cells = compare_systems(systems, parse_measure("RR"), subset="strict").cells
    assert [(cells[name]["set"].mean, cells[name]["set"].questions) for name in ("one", "two")] == [(100, 1), (50, 1)]
    with pytest.raises(ValueError, match="no question is in the subset 'strict'"):
        compare_systems({"none": {"set": [{"1": systems["two"]["set"][0]["1"]}]}}, parse_measure("RR"), subset="strict")


def test_without_a_baseline_nothing_is_tested(systems: Systems) -> None:
    """Only figures; an unknown baseline is named."""
    result = compare_systems(systems, parse_measure("AP"))
    assert all(cell.against is None for row in result.cells.values() for cell in row.values())
    with pytest.raises(ValueError, match="there is no system 'bm25'; there are: base, good, same"):
        compare_systems(systems, parse_measure("AP"), baseline="bm25")


def rejected(p_values: list[float], level: float) -> set[int]:
    """The step-down procedure itself."""
    places = set[int]()
    for before, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[place] * (len(p_values) - before) >= level:
            break
        places.add(place)
    return places


@given(p_values=st.lists(st.floats(0, 1), max_size=8), level=st.sampled_from([0.01, 0.05, 0.3, 1.0]))
def test_adjusted_values_reject_what_the_procedure_rejects(p_values: list[float], level: float) -> None:
    """At any level; adjusted values are probabilities, and never below the given ones."""
    adjusted = holm(p_values)
    assert {place for place, value in enumerate(adjusted) if value < level} == rejected(p_values, level)
    assert all(before <= after <= 1 for before, after in zip(p_values, adjusted, strict=True))
