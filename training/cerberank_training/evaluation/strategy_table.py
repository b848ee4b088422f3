"""CERBERUS's comparison of strategies (table 3): its runs, and the table of their results.

Input: per-question records of every run and seed. Output: mean and standard deviation over seeds, and a paired test of
each strategy against a rival. In the test, a question counts with its mean over the seeds that both have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cerberank_training.evaluation.compare import MetricComparison, compare_metric
from cerberank_training.evaluation.per_question import Records
from cerberank_training.evaluation.report import table
from cerberank_training.learning.strategies import Strategy

COLUMNS = ("p@1", "map", "mrr")
"""The metrics of the paper's tables."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """The run for one row of the table."""

    name: str
    strategy: Strategy
    heads: int
    teachers: tuple[str, ...]
    """The teachers' score caches, in the order of the heads."""


def plan(teachers: Sequence[str], hydra: Sequence[str]) -> tuple[PlannedRun, ...]:
    """The runs for `teachers` of different kinds, the first for the single teacher, and for `hydra` of one kind.

    >>> [run.name for run in plan(["a", "b", "c"], [])]
    ['hard, one head', 'hard', 'single', 'kd_sum', 'kd_rr', 'single_all_heads', 'cerberus']
    """
    one, every, heads = (teachers[0],), tuple(teachers), len(teachers)
    runs = [
        PlannedRun(name="hard, one head", strategy="hard", heads=1, teachers=()),
        PlannedRun(name="hard", strategy="hard", heads=heads, teachers=()),
        PlannedRun(name="single", strategy="single", heads=1, teachers=one),
        PlannedRun(name="kd_sum", strategy="kd_sum", heads=1, teachers=every),
        PlannedRun(name="kd_rr", strategy="kd_rr", heads=1, teachers=every),
        PlannedRun(name="single_all_heads", strategy="single_all_heads", heads=heads, teachers=one),
    ]
    if hydra:
        runs.append(PlannedRun(name="hydra", strategy="hydra", heads=len(hydra), teachers=tuple(hydra)))
    return (*runs, PlannedRun(name="cerberus", strategy="cerberus", heads=heads, teachers=every))


def chosen(runs: Sequence[PlannedRun], names: Sequence[str]) -> list[PlannedRun]:
    """The runs whose row or strategy is in `names`; without names, all runs.

    Raises ValueError, which lists the runs, for a name that no run has.
    """
    for name in names:
        if not any(name in (run.name, run.strategy) for run in runs):
            raise ValueError(f"there is no run {name!r}; the runs are {'; '.join(run.name for run in runs)}")
    return [run for run in runs if not names or run.name in names or run.strategy in names]


def strategy_table(results: Mapping[str, Mapping[int, Records]], *, rival: str = "cerberus") -> str:
    """The table in Markdown. `results` has records by strategy and seed, all of the same test questions."""
    header = ["strategy", "seeds", "P@1", "MAP", "MRR", f"MAP against {rival}", "p (Wilcoxon)", "better / same / worse"]
    rows = []
    for name, by_seed in results.items():
        row = [name, str(len(by_seed)), *(_mean_and_spread(by_seed, metric) for metric in COLUMNS)]
        common = sorted(set(by_seed) & set(results.get(rival, {})))
        if name == rival or not common:
            rows.append([*row, "", "", ""])
            continue
        test = compare_seeds(by_seed, results[rival], "map")
        outcome = f"{test.wins} / {test.ties} / {test.losses}"
        rows.append([*row, f"{test.difference:+.2f}", f"{test.p_value:.2g}", outcome])
    return table(header, rows)


def compare_seeds(ours: Mapping[int, Records], theirs: Mapping[int, Records], metric: str) -> MetricComparison:
    """Compare over the same questions, by the mean of each question over the common seeds (at least one)."""
    common = sorted(set(ours) & set(theirs))
    return compare_metric(
        *(np.mean([values_of(by_seed[seed], metric) for seed in common], axis=0) for by_seed in (ours, theirs))
    )


def values_of(records: Records, metric: str) -> NDArray[np.float64]:
    """The metric of the questions that have a positive, in the order of their ids."""
    metrics = [records[name].rankings["final"].metrics for name in sorted(records)]
    return np.asarray([values[metric] for values in metrics if values])


def _mean_and_spread(by_seed: Mapping[int, Records], metric: str) -> str:
    """The mean over seeds and, with several seeds, the standard deviation."""
    means = [100 * float(values_of(records, metric).mean()) for records in by_seed.values()]
    spread = f" ± {np.std(means, ddof=1):.1f}" if len(means) > 1 else ""
    return f"{np.mean(means):.1f}{spread}"
