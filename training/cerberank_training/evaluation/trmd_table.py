"""TRMD's comparison of systems (table 2): its rows, the comparisons with significance tests, and the table.

Input: per-question records of every system and seed on one test set. Output: means over seeds and questions, and paired
tests of a distilled student against the same network without teachers (TR) and against the plain bi-encoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from cerberank_training.evaluation.compare import MetricComparison
from cerberank_training.evaluation.metrics import METRICS, TITLES
from cerberank_training.evaluation.per_question import Records
from cerberank_training.evaluation.report import table
from cerberank_training.evaluation.strategy_table import compare_seeds, values_of

COLUMNS = ("map", "mrr", "p@1", "ndcg@10", "p@20", "ndcg@20")
"""The metrics of the table; the paper has the last two."""

ROWS: Mapping[str, str] = MappingProxyType(
    {
        "mono": "monoBERT",
        "twin": "TwinBERT",
        "tr-twin": "TR-TwinBERT",
        "trmd-twin": "TRMD-TwinBERT",
        "colbert": "ColBERT",
        "tr-colbert": "TR-ColBERT",
        "trmd-colbert": "TRMD-ColBERT",
        "trmd-joint-twin": "TRMD-TwinBERT, cross-encoder",
        "trmd-joint-colbert": "TRMD-ColBERT, cross-encoder",
    }
)
"""The table's systems and their titles; teachers come before their students."""

COMPARISONS = (
    ("trmd-twin", "tr-twin"),
    ("trmd-twin", "twin"),
    ("trmd-colbert", "tr-colbert"),
    ("trmd-colbert", "colbert"),
    ("trmd-joint-twin", "mono"),
    ("trmd-joint-colbert", "mono"),
)

Results = Mapping[str, Mapping[int, Records]]
"""The records by system and seed, all of the same questions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemComparison:
    """A paired comparison of two systems over their common seeds."""

    ours: str
    theirs: str
    seeds: tuple[int, ...]
    metrics: dict[str, MetricComparison]


def comparisons(results: Results) -> list[SystemComparison]:
    """The comparisons of COMPARISONS whose systems have a common seed."""
    found = []
    for ours, theirs in COMPARISONS:
        a, b = results.get(ours, {}), results.get(theirs, {})
        if common := tuple(sorted(set(a) & set(b))):
            metrics = {metric: compare_seeds(a, b, metric) for metric in METRICS}
            found.append(SystemComparison(ours=ours, theirs=theirs, seeds=common, metrics=metrics))
    return found


def trmd_table(results: Results) -> str:
    """The table in Markdown: mean percentages over seeds, with each seed's in brackets, and then the comparisons."""
    figures = [
        [ROWS[name], str(len(by_seed)), *(_mean_and_each(by_seed, metric) for metric in COLUMNS)]
        for name, by_seed in results.items()
    ]
    tests = [
        [
            f"{ROWS[pair.ours]} against {ROWS[pair.theirs]}",
            TITLES[metric],
            f"{test.difference:+.2f}",
            f"{test.student_p_value:.2g}",
            f"{test.p_value:.2g}",
            f"{test.wins} / {test.ties} / {test.losses}",
        ]
        for pair in comparisons(results)
        for metric in COLUMNS
        for test in (pair.metrics[metric],)
    ]
    shown = table(["system", "seeds", *(TITLES[metric] for metric in COLUMNS)], figures)
    header = ["comparison", "metric", "difference", "p (Student)", "p (Wilcoxon)", "better / same / worse"]
    return f"{shown}\n\n{table(header, tests)}" if tests else shown


def trmd_content(results: Results) -> dict[str, Any]:
    """The content for programs: all metrics in percent, numbers of questions and candidates, and the comparisons."""
    records = [lines for by_seed in results.values() for lines in by_seed.values()]
    counted = [line for line in records[0].values() if line.answerable] if records else []
    return {
        "questions": len(counted),
        "pairs": sum(len(line.labels) for line in counted),
        "systems": {
            name: {
                str(seed): {metric: _percent(lines, metric) for metric in METRICS} for seed, lines in by_seed.items()
            }
            for name, by_seed in results.items()
        },
        "comparisons": [asdict(pair) for pair in comparisons(results)],
    }


def _mean_and_each(by_seed: Mapping[int, Records], metric: str) -> str:
    each = [_percent(records, metric) for records in by_seed.values()]
    seeds = f" ({', '.join(f'{value:.1f}' for value in each)})" if len(each) > 1 else ""
    return f"{np.mean(each):.1f}{seeds}"


def _percent(records: Records, metric: str) -> float:
    return 100 * float(values_of(records, metric).mean())
