"""Compares two rankings of the same candidates question by question.

Input: two sets of per-question records. Output: means; their difference with a paired Wilcoxon signed-rank test
(CERBERUS) and a paired Student's t-test (SSP); wins, ties and losses; the Spearman correlation of the two orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cerberank_training.data.question import Subset, within
from cerberank_training.evaluation.measures import Measure
from cerberank_training.evaluation.per_question import QuestionRecord, Records
from cerberank_training.evaluation.question_metrics import USUAL

SIGNIFICANCE = 0.05
"""The level of significance of differences and of questions' correlations."""
FEWEST = 5
"""The least number of candidates for a p-value: two orders of fewer are equal or opposite by chance too often."""
DIGITS = 12
"""Differences are rounded to this number of digits, so that 1/2 - 1/3 and 1/3 - 1/6 get the same rank."""

Pair = tuple[QuestionRecord, QuestionRecord]
"""A question's records in A and in B."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricComparison:
    """One metric over paired questions. Means and the difference are percentages."""

    mean_a: float
    mean_b: float
    difference: float
    """The mean of A minus the mean of B."""
    error: float
    """The standard error of the difference, from the questions' own differences; 0 for a single question."""
    p_value: float
    """Wilcoxon's two-sided p-value; 1 if no question has a difference."""
    student_p_value: float
    """Student's two-sided p-value; 1 if no question has a difference, or if there is a single question."""
    wins: int
    """The number of questions where A is better."""
    ties: int
    losses: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankingComparison:
    """The result of comparing two rankings."""

    questions: int
    metrics: dict[str, MetricComparison]
    spearman: float | None
    """The mean correlation of the two orders over `spearman_questions`; None if there are none."""
    spearman_questions: int
    """The number of questions where the correlation is defined: both orders have at least two distinct ranks."""
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
    """Compare over the questions of `subset`. In `raw`, questions without a positive are ties.

    The records must be comparable (`check_comparable`); orders of different candidates have no correlation. If
    `measures` are given, they replace the usual ones. `level` is the level of significance of the correlations;
    CERBERUS has .01. Raises ValueError for an empty subset.
    """
    pairs = paired(first, second, subset)
    named = {str(each): each for each in measures} or USUAL
    values = [(one.values(ranking_a, named), other.values(ranking_b, named)) for one, other in pairs]
    defined = [
        value
        for one, other in pairs
        if one.candidates == other.candidates
        and (value := spearman(one.ranks(ranking_a), other.ranks(ranking_b))) is not None
    ]
    return RankingComparison(
        questions=len(pairs),
        metrics={
            name: compare_metric(np.asarray([a[name] for a, _ in values]), np.asarray([b[name] for _, b in values]))
            for name in named
        },
        spearman=float(np.mean([value for value, _ in defined])) if defined else None,
        spearman_questions=len(defined),
        spearman_significant=sum(p_value < level for _, p_value in defined),
        level=level,
    )


def paired(first: Records, second: Records, subset: Subset) -> list[Pair]:
    """The pairs of records of `subset`, in the order of `first`. Raises ValueError if there are none."""
    pairs = [
        (one, other)
        for one, other in ((record, second[name]) for name, record in first.items())
        if all(within(each.labels, each.missed, subset) for each in (one, other))
    ]
    if not pairs:
        raise ValueError(f"no question is in the subset {subset!r}")
    return pairs


def compare_metric(a: NDArray[np.float64], b: NDArray[np.float64]) -> MetricComparison:
    """Compare paired values (0 to 1) of questions.

    The Wilcoxon test leaves out questions without a difference; the t-test does not.

    >>> got = compare_metric(np.array([1.0, 1.0, 0.5]), np.array([0.5, 0.9, 0.5]))
    >>> got.wins, got.ties, got.losses, got.p_value, round(got.student_p_value, 3), round(got.error, 1)
    (2, 1, 0, 0.5, 0.321, 15.3)
    """
    differences = np.round(a - b, DIGITS)
    unequal = differences[differences != 0]
    return MetricComparison(
        mean_a=100.0 * float(a.mean()),
        mean_b=100.0 * float(b.mean()),
        difference=100.0 * float((a - b).mean()),
        error=100.0 * float(stats.sem(differences)) if len(differences) > 1 else 0.0,
        p_value=float(stats.wilcoxon(unequal).pvalue) if len(unequal) else 1.0,
        student_p_value=_student(differences),
        wins=int((differences > 0).sum()),
        ties=int((differences == 0).sum()),
        losses=int((differences < 0).sum()),
    )


def spearman(a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[float, float] | None:
    """The rank correlation of two orders [n], and its two-sided p-value by Student's t. Ties have their mean rank.

    None if either order has a single rank. With fewer than FEWEST candidates the p-value is 1.

    >>> value, p_value = spearman(np.array([0, 1, 2, 3, 4]), np.array([1, 0, 2, 3, 4]))
    >>> value, round(p_value, 3)
    (0.9, 0.037)
    """
    if len(set(a.tolist())) < 2 or len(set(b.tolist())) < 2:
        return None
    result = stats.spearmanr(a, b)
    return round(float(result.statistic), DIGITS), float(result.pvalue) if len(a) >= FEWEST else 1.0


def _student(differences: NDArray[np.float64]) -> float:
    """The p-value of the paired t-test of the differences [n], also for equal differences, where t is not finite."""
    if len(differences) < 2 or not differences.any():
        return 1.0
    return 0.0 if np.ptp(differences) == 0 else float(stats.ttest_1samp(differences, 0.0).pvalue)
