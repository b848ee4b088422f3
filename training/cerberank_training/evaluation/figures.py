"""The figures of rankings: means over the questions of a subset, with standard errors and bounds under ties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from cerberank_training.data import Question, Subset
from cerberank_training.data.question import within
from cerberank_training.evaluation.measures import Measure
from cerberank_training.evaluation.question_metrics import QuestionMetrics, question_metrics
from cerberank_training.evaluation.variants import Ranks


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one variant on one subset; metrics are percentages."""

    questions: int
    pairs: int
    mean: dict[str, float]
    error: dict[str, float | None]
    """The standard error of the mean; None for a single question."""
    pessimistic: dict[str, float]
    optimistic: dict[str, float]
    tied: int


@dataclass(frozen=True, slots=True)
class _Row:
    pairs: int
    subsets: frozenset[Subset]
    metrics: dict[str, QuestionMetrics]


class Evaluation:
    """Collects the metrics of questions one by one. Texts and scores are not kept."""

    def __init__(self, measures: Sequence[Measure] = ()) -> None:
        """Start empty; `measures` are computed in addition to METRICS."""
        self._rows: list[_Row] = []
        self._measures = tuple(measures)
        self.without_positive = 0
        """The number of questions without a positive, which count as 0 in `raw` and are left out of other subsets."""

    @classmethod
    def joined(cls, parts: Sequence[Evaluation]) -> Evaluation:
        """The evaluation of the questions of all parts, in their order; there must be a part."""
        evaluation = cls(parts[0]._measures)
        evaluation._rows = [row for part in parts for row in part._rows]
        evaluation.without_positive = sum(part.without_positive for part in parts)
        return evaluation

    def add(self, question: Question, ranks: Mapping[str, Ranks]) -> dict[str, QuestionMetrics]:
        """Add one question with its ranks by variant; returns its metrics."""
        labels = np.asarray(question.labels)
        metrics = {
            name: question_metrics(labels, value, question.missed, self._measures) for name, value in ranks.items()
        }
        self.without_positive += int(not question.answerable)
        subsets = frozenset(name for name in get_args(Subset) if within(question.labels, question.missed, name))
        self._rows.append(_Row(len(labels), subsets, metrics))
        return metrics

    def figures(self, name: Subset = "clean") -> dict[str, Figures]:
        """The figures of a subset, for the variants that all its questions have. Raises ValueError for an empty subset.

        A variant may be missing, because a service returns the heads' scores only if it has dropped nothing.
        """
        rows = [row for row in self._rows if name in row.subsets]
        if not rows:
            raise ValueError(f"no question is in the subset {name!r}")
        pairs = sum(row.pairs for row in rows)
        everywhere = [name for name in rows[0].metrics if all(name in row.metrics for row in rows)]
        return {variant: _figures([row.metrics[variant] for row in rows], pairs=pairs) for variant in everywhere}

    def all_figures(self) -> dict[Subset, dict[str, Figures]]:
        """The figures of each variant on every subset that has a question."""
        present = frozenset[Subset]().union(*(row.subsets for row in self._rows))
        return {name: self.figures(name) for name in get_args(Subset) if name in present}


def _figures(rows: Sequence[QuestionMetrics], *, pairs: int) -> Figures:
    names = tuple(rows[0].expected)
    expected = {name: np.asarray([row.expected[name] for row in rows]) for name in names}
    return Figures(
        questions=len(rows),
        pairs=pairs,
        mean={name: 100.0 * float(values.mean()) for name, values in expected.items()},
        error={name: _standard_error(values) for name, values in expected.items()},
        pessimistic={name: 100.0 * float(np.mean([row.pessimistic[name] for row in rows])) for name in names},
        optimistic={name: 100.0 * float(np.mean([row.optimistic[name] for row in rows])) for name in names},
        tied=sum(row.tied for row in rows),
    )


def _standard_error(values: NDArray[np.float64]) -> float | None:
    """The standard error of the mean; None and not NaN for a single value, because JSON has no NaN."""
    return 100.0 * float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
