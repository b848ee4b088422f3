"""Figures that tell if first results' scores are probabilities and separate questions with and without an answer.

Input, for each question: the score of its first result, P(any candidate answers), and labels. Output: AUROC, expected
calibration error, Brier score, and the precision for shares of the questions with the highest scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
BINS = 10
"""The number of bins, of equal width, in the expected calibration error."""
PRECISION = 0.85
"""The precision for which `recall` is computed."""
COVERAGES = tuple(round(0.1 * step, 1) for step in range(1, 11))


@dataclass(frozen=True, slots=True)
class FirstResult:
    """The first result of one question."""

    score: float
    right: bool
    answered: bool
    """True if any candidate answers the question."""
    answerable: float
    """P(any candidate answers), or the score again if the model is not calibrated."""


@dataclass(frozen=True, slots=True)
class FirstResultFigures:
    """The figures of n questions. All but `questions` and `answered` are from 0 to 1."""

    questions: int
    answered: int
    """The number of questions with an answer among their candidates."""
    ece: float
    """The expected calibration error of the scores: over BINS bins, the mean distance of score and share of right
    results."""
    answerable_ece: float
    """The same of `answerable` and the share of questions with an answer."""
    brier: float
    """The mean squared difference of the score from 1 for a right result, or from 0 for a wrong one."""
    base_brier: float
    """The Brier score of a constant score, which is the share of right first results."""
    auroc: float | None
    """P(a question with an answer has a higher `answerable` than one without); None if either kind is missing."""
    recall: float
    """The largest share of questions with an answer whose first result is right and above a threshold with a precision
    of PRECISION or more."""
    precision_at: dict[str, float]
    """The precision for the questions with the highest scores, by their share of all questions."""


def first_result_figures(results: Sequence[FirstResult]) -> FirstResultFigures:
    """The figures of the results of one data set. Raises ValueError if there are no results."""
    if not results:
        raise ValueError("there is no question to measure first results on")
    scores = np.array([each.score for each in results])
    right = np.array([each.right for each in results])
    answered = np.array([each.answered for each in results])
    best_first = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[best_first])
    precision = hits / np.arange(1, len(results) + 1)
    # A threshold cannot separate equal scores, so only the last of equal scores is a cut.
    cuts = np.append(np.diff(scores[best_first]) != 0, True)
    precise_hits = hits[cuts & (precision >= PRECISION)]
    share = right.mean()
    return FirstResultFigures(
        questions=len(results),
        answered=int(answered.sum()),
        ece=calibration_error(scores, right),
        answerable_ece=calibration_error(np.array([each.answerable for each in results]), answered),
        brier=float(np.mean((scores - right) ** 2)),
        base_brier=float(share * (1.0 - share)),
        auroc=auroc(np.array([each.answerable for each in results]), answered),
        recall=float(precise_hits.max() / answered.sum()) if len(precise_hits) and answered.any() else 0.0,
        precision_at={
            f"{coverage:g}": float(precision[max(1, round(coverage * len(results))) - 1]) for coverage in COVERAGES
        },
    )


def calibration_error(scores: Floats, right: Flags) -> float:
    """Expected calibration error (Guo et al., 2017) in bins of equal width: `scores` and `right` have shape [n].

    >>> calibration_error(np.array([0.8, 0.8, 0.8, 0.8]), np.array([True, True, True, False]))
    0.05
    """
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    distance = np.abs(np.bincount(bins, scores, BINS) - np.bincount(bins, right, BINS))
    return float(np.round(distance.sum() / counts.sum(), 12))


def auroc(scores: Floats, positive: Flags) -> float | None:
    """The area under the ROC curve, where ties count half; None if positives or negatives are missing.

    >>> auroc(np.array([0.1, 0.4, 0.4]), np.array([False, True, False]))
    0.75
    """
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return None
    ranks = rankdata(scores)[positive].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))


def sentence(figures: FirstResultFigures, what: str = "First scores") -> str:
    """The figures in words; `what` names their subject."""
    skill = 1.0 - figures.brier / figures.base_brier if figures.base_brier else 0.0
    text = (
        f"{what}: calibration error {figures.ece:.3f}, Brier score {figures.brier:.3f} "
        f"({100 * abs(skill):.0f} % {'below' if skill >= 0 else 'above'} a constant's), "
        f"recall {figures.recall:.2f} at precision {PRECISION:g}"
    )
    if figures.auroc is not None:
        unanswered = figures.questions - figures.answered
        text += (
            f"; calibration error of `answerable` {figures.answerable_ece:.3f}, AUROC {figures.auroc:.3f} for the "
            f"{unanswered} of {figures.questions} questions without an answer"
        )
    shares = ", ".join(f"{figures.precision_at[at]:.2f} ({100 * float(at):.0f} %)" for at in ("0.2", "0.5", "0.8", "1"))
    return f"{text}. Precision among the questions with the highest first scores: {shares}."
