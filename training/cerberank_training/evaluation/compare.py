"""Two rankings of the same candidates, compared question by question.

In: two sets of per-question records. Out: means, their difference with a paired Wilcoxon signed-rank test
(CERBERUS) and a paired Student's t-test (SSP), wins, ties and losses, and the Spearman correlation of the two orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cerberank_training.data.question import Subset, within
from cerberank_training.evaluation.measures import Measure, expected_measure
from cerberank_training.evaluation.metrics import METRICS
from cerberank_training.evaluation.per_question import QuestionRecord, Records

SIGNIFICANCE = 0.05
"""Below this p-value a difference, or a question's correlation, is called significant."""
FEWEST = 5
"""Two orders of fewer candidates are equal or opposite by chance more often than once in twenty times."""
DIGITS = 12
"""Differences are rounded to so many digits, so that 1/2 - 1/3 and 1/3 - 1/6 get the same rank."""

Pair = tuple[QuestionRecord, QuestionRecord]
"""A question's records in A and in B."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricComparison:
    """One metric over paired questions; means and difference in percent."""

    mean_a: float
    mean_b: float
    difference: float
    """The mean of A minus the mean of B."""
    p_value: float
    """Wilcoxon's two-sided p-value; 1 when no question differs."""
    student_p_value: float
    """Student's two-sided p-value; 1 when no question differs or there is one question."""
    wins: int
    """Questions where A is better."""
    ties: int
    losses: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankingComparison:
    """The result of comparing two rankings."""

    questions: int
    metrics: dict[str, MetricComparison]
    spearman: float | None
    """The mean over questions of the correlation of the two orders; None when no question defines it."""
    spearman_questions: int
    """The number of questions that define it: both orders have at least two distinct ranks."""
    spearman_significant: int
    """The number of questions whose correlation has a two-sided p-value below `level`."""
    level: float


def compare(
    first: Records,
    second: Records,
    *,
    ranking_a: str = "final",
    ranking_b: str = "final",
    subset: Subset = "clean",
    measures: Sequence[Measure] = (),
    level: float = SIGNIFICANCE,
) -> RankingComparison:
    """Compare over the questions of `subset`; `raw` adds only ties to `clean`: questions without a positive.

    The records must be comparable (`check_comparable`); orders of different candidates have no correlation. Metrics
    that one of the files lacks, because an earlier version wrote it, are left out. `measures` are compared instead of
    METRICS where there are any. `level` is that of the correlations; CERBERUS has .01. Raises ValueError for an empty
    subset.
    """
    pairs = paired(first, second, subset)
    if measures:
        asked = {
            str(each): compare_metric(
                np.asarray([measured(one, ranking_a, each) for one, _ in pairs]),
                np.asarray([measured(other, ranking_b, each) for _, other in pairs]),
            )
            for each in measures
        }
    else:
        asked = _usual_metrics(pairs, ranking_a, ranking_b)
    defined = [
        value
        for one, other in pairs
        if one.candidates == other.candidates
        and (value := spearman(one.ranks(ranking_a), other.ranks(ranking_b))) is not None
    ]
    return RankingComparison(
        questions=len(pairs),
        metrics=asked,
        spearman=float(np.mean([value for value, _ in defined])) if defined else None,
        spearman_questions=len(defined),
        spearman_significant=sum(p_value < level for _, p_value in defined),
        level=level,
    )


def paired(first: Records, second: Records, subset: Subset) -> list[Pair]:
    """The questions of `subset` in both, in the first one's order. Raises ValueError without any."""
    pairs = [
        (one, other)
        for one, other in ((record, second[name]) for name, record in first.items())
        if all(within(each.labels, each.missed, subset) for each in (one, other))
    ]
    if not pairs:
        raise ValueError(f"no question is in the subset {subset!r}")
    return pairs


def measured(record: QuestionRecord, ranking: str, measure: Measure) -> float:
    """The measure's value in 0..1, from the record's ranks; 0 without a relevant document."""
    return expected_measure(measure, np.asarray(record.labels), record.ranks(ranking), record.missed)


def _usual_metrics(pairs: Sequence[Pair], ranking_a: str, ranking_b: str) -> dict[str, MetricComparison]:
    held = [
        set(record.rankings[ranking].metrics)
        for pair in pairs
        for record, ranking in zip(pair, (ranking_a, ranking_b), strict=True)
        if record.answerable
    ]
    metrics = {}
    for name in (name for name in METRICS if all(name in each for each in held)):
        # A question without a positive has no metrics; raw counts 0 for it.
        a = np.asarray([one.rankings[ranking_a].metrics.get(name, 0.0) for one, _ in pairs])
        b = np.asarray([other.rankings[ranking_b].metrics.get(name, 0.0) for _, other in pairs])
        metrics[name] = compare_metric(a, b)
    return metrics


def compare_metric(a: NDArray[np.float64], b: NDArray[np.float64]) -> MetricComparison:
    """Compare paired values in 0..1 of each question. The Wilcoxon test leaves questions without a difference out,
    the t-test does not.

    >>> got = compare_metric(np.array([1.0, 1.0, 0.5]), np.array([0.5, 0.9, 0.5]))
    >>> got.wins, got.ties, got.losses, got.p_value, round(got.student_p_value, 3)
    (2, 1, 0, 0.5, 0.321)
    """
    differences = np.round(a - b, DIGITS)
    unequal = differences[differences != 0]
    return MetricComparison(
        mean_a=100.0 * float(a.mean()),
        mean_b=100.0 * float(b.mean()),
        difference=100.0 * float((a - b).mean()),
        p_value=float(stats.wilcoxon(unequal).pvalue) if len(unequal) else 1.0,
        student_p_value=_student(differences),
        wins=int((differences > 0).sum()),
        ties=int((differences == 0).sum()),
        losses=int((differences < 0).sum()),
    )


def spearman(a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[float, float] | None:
    """Rank correlation of two orders [n], ties sharing their mean rank, and its two-sided p-value by Student's t.

    None when either order has a single rank. Of fewer than FEWEST candidates the p-value is 1.

    >>> value, p_value = spearman(np.array([0, 1, 2, 3, 4]), np.array([1, 0, 2, 3, 4]))
    >>> value, round(p_value, 3)
    (0.9, 0.037)
    """
    if len(set(a.tolist())) < 2 or len(set(b.tolist())) < 2:
        return None
    result = stats.spearmanr(a, b)
    return round(float(result.statistic), DIGITS), float(result.pvalue) if len(a) >= FEWEST else 1.0


def _student(differences: NDArray[np.float64]) -> float:
    """The p-value of the paired t-test of the differences [n]; without a spread t is infinite, or undefined."""
    if len(differences) < 2 or not differences.any():
        return 1.0
    return 0.0 if np.ptp(differences) == 0 else float(stats.ttest_1samp(differences, 0.0).pvalue)
