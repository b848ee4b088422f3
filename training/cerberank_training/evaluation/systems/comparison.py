"""The figures of a table of systems: means by set, and paired tests over questions against a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cerberank_training.data import Subset
from cerberank_training.data.question import within
from cerberank_training.evaluation.measures import Measure
from cerberank_training.evaluation.paired_tests import MetricComparison, compare_metric
from cerberank_training.evaluation.per_question import Records
from cerberank_training.evaluation.systems.folders import Systems

Place = tuple[str, str]
"""A system and a set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Against:
    """The tests of a system against the baseline on one set."""

    test: MetricComparison
    student_holm: float
    """Student's p-value after Holm's correction."""
    wilcoxon_holm: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """The figures of one system on one set."""

    mean: float
    """The mean over questions and runs, in percent."""
    spread: float | None
    """The standard deviation of the runs' means, in percent; None for a single run."""
    runs: int
    questions: int
    against: Against | None
    """The tests; None for the baseline itself, or if there is no baseline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemTable:
    """One measure of all systems on all sets."""

    measure: str
    baseline: str | None
    cells: dict[str, dict[str, Cell]]
    """The cells by system and set."""
    means: dict[str, float]
    """The mean of each system over sets, which have equal weights."""
    tests: int
    """The number of tests of one kind, which the correction takes together."""


def compare_systems(
    systems: Systems,
    measure: Measure,
    *,
    baseline: str | None = None,
    ranking: str = "final",
    subset: Subset = "clean",
) -> SystemTable:
    """The table of one measure. Means and tests use each question's mean over the runs of a system.

    Raises ValueError for an unknown baseline, and for a set without a question.
    """
    if baseline is not None and baseline not in systems:
        raise ValueError(f"there is no system {baseline!r}; there are: {', '.join(systems)}")
    # The measure's values [runs, questions] by system and set, over the questions that all runs of the set have.
    values = {}
    for name in next(iter(systems.values())):
        questions = _questions([run for sets in systems.values() for run in sets[name]], subset)
        for system, sets in systems.items():
            runs = [[run[question].values(ranking, {"": measure})[""] for question in questions] for run in sets[name]]
            values[system, name] = np.asarray(runs)
    # Each system's means over runs against the baseline's, and the correction over all of the table.
    tests = {
        place: compare_metric(runs_values.mean(axis=0), values[baseline, place[1]].mean(axis=0))
        for place, runs_values in values.items()
        if baseline is not None and place[0] != baseline
    }
    student = _corrected({place: test.student_p_value for place, test in tests.items()})
    wilcoxon = _corrected({place: test.p_value for place, test in tests.items()})
    # The table itself.
    cells = {
        system: {
            name: _cell(
                values[system, name],
                Against(
                    test=tests[system, name],
                    student_holm=student[system, name],
                    wilcoxon_holm=wilcoxon[system, name],
                )
                if (system, name) in tests
                else None,
            )
            for name in sets
        }
        for system, sets in systems.items()
    }
    return SystemTable(
        measure=str(measure),
        baseline=baseline,
        cells=cells,
        means={system: float(np.mean([cell.mean for cell in row.values()])) for system, row in cells.items()},
        tests=len(tests),
    )


def _questions(runs: Sequence[Records], subset: Subset) -> list[str]:
    """The questions that are in the subset for the documents of every run."""
    questions = [
        question
        for question in runs[0]
        if all(within(run[question].labels, run[question].missed, subset) for run in runs)
    ]
    if not questions:
        raise ValueError(f"no question is in the subset {subset!r}")
    return questions


def _cell(values: NDArray[np.float64], against: Against | None) -> Cell:
    """The figures of values [runs, questions], which are from 0 to 1."""
    runs, questions = values.shape
    spread = 100 * float(values.mean(axis=1).std(ddof=1)) if runs > 1 else None
    return Cell(mean=100 * float(values.mean()), spread=spread, runs=runs, questions=questions, against=against)


def _corrected(p_values: Mapping[Place, float]) -> dict[Place, float]:
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values in the given order, which bound the probability of any false rejection.

    The smallest of m p-values is multiplied by m, the next by m - 1, and so on; each is at least the one before it.

    >>> [round(value, 3) for value in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    adjusted, least = [1.0] * len(p_values), 0.0
    ascending = sorted(range(len(p_values)), key=p_values.__getitem__)
    for before, place in enumerate(ascending):
        least = min(1.0, max(least, (len(p_values) - before) * p_values[place]))
        adjusted[place] = least
    return adjusted
