"""Fits a calibration, which turns a checkpoint's raw scores into probabilities, on held-out questions.

Input: the scores of all stages for these questions, with labels. Output: a `Calibration`, and figures by
cross-validation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import beta

from cerberank_models.calibration import (
    CERTAINLY_WRONG,
    Calibration,
    CalibrationData,
    Curve,
    StageCurves,
    Threshold,
    curve_features,
    limited_log_odds,
    probabilities,
    rival_log_odds,
    sigmoid,
)
from cerberank_training.data import DataError, Question
from cerberank_training.evaluation.first_results import (
    FirstResult,
    FirstResultFigures,
    first_result_figures,
)
from cerberank_training.evaluation.variants import AllScores

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
FEWEST = 100
"""The least number of questions. The bound at precision .85 alone needs 30 first results."""
BEST = 10
"""The number of best candidates of a question on which the curves of candidates are fitted.

With cerberank-mini 2.4.0 and 1,340 questions of 13 sets, half of them without an answer, the calibration error of first
results and of all candidates by cross-validation is .042 and .010 with the best two, .039 and .002 with ten, and .038
and .002 with all."""
FLATTEST = 1e-3
"""The least weight of a score, which keeps the order of candidates even for an exit with uninformative scores."""
CONFIDENCE = 0.9
STARTS = (0.05, 0.1, 0.2)
"""The shares of the first results at which the tests of thresholds begin."""
PRECISIONS = tuple(round(0.05 * step, 2) for step in range(10, 20))
RECALLS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Scored:
    """One question: the raw scores [n] of its candidates for each stage, and flags of those that answer it."""

    stages: tuple[Floats, ...]
    right: Flags

    @classmethod
    def of(cls, question: Question, scores: AllScores) -> Scored:
        """Make it from a question and its scores by `score_questions`."""
        return cls(scores.stages, np.asarray(question.labels) > 0)

    @property
    def final(self) -> Floats:
        """The scores of the last stage."""
        return self.stages[-1]

    @property
    def answered(self) -> bool:
        """True if a candidate answers the question."""
        return bool(self.right.any())


def check_questions(questions: Sequence[Question]) -> None:
    """Raise DataError for questions that no calibration can be fitted on."""
    if len(questions) < FEWEST:
        raise DataError(f"{len(questions)} questions are too few to calibrate on: at least {FEWEST}, better 300")
    answered = sum(any(each.labels) for each in questions)
    if answered in (0, len(questions)):
        lack = "have an answer" if answered else "lack an answer"
        raise DataError(f"all questions {lack}: no probability of an answer fits them")


def check_curves(calibration: Calibration) -> None:
    """Raise DataError if the last stage gives right candidates no higher scores than wrong ones.

    A rival suffices: the scores of a ranker that learnt by comparison only compare within a question.
    """
    last = calibration.stages[-1].candidate
    if last.score <= FLATTEST and last.rival <= 0.0:
        raise DataError("the scores are not higher for right candidates than for wrong ones")


def fit(questions: Sequence[Scored], *, sets: Iterable[str], precision: str, removed: int) -> Calibration:
    """Fit the calibration on these questions; `precision` is the number format of their scores.

    `removed` of the questions have no answer because their answers were removed.
    """
    unanswered = sum(not each.right.any() for each in questions)
    calibration = Calibration(
        stages=fitted_curves(questions),
        unanswered=unanswered / len(questions),
        precision=(),
        recall=(),
        confidence=CONFIDENCE,
        mean_score=0.5,
        mean_answerable=0.5,
        data=CalibrationData(
            sets=tuple(sets),
            questions=len(questions),
            unanswered=unanswered,
            removed=removed,
            candidates=sum(len(each.right) for each in questions),
            precision=precision,
        ),
    )
    # Thresholds and means are of the first results' calibrated scores.
    firsts = [first_result(calibration.stages, each) for each in questions]
    return calibration.model_copy(
        update={
            "precision": precision_thresholds(firsts),
            "recall": _recall_thresholds(calibration, questions, firsts),
            "mean_score": float(np.mean([each.score for each in firsts])),
            "mean_answerable": float(np.mean([each.answerable for each in firsts])),
        }
    )


def first_result(curves: Sequence[StageCurves] | None, question: Scored) -> FirstResult:
    """The first result of a question without drops. Its score is calibrated if there are curves."""
    best = int(np.argmax(question.final))
    right, answered = bool(question.right[best]), bool(question.right.any())
    score = answerable = float(question.final[best])
    if curves is not None:
        calibrated = probabilities(curves, question.final, np.full(len(question.right), len(curves) - 1))
        score, answerable = float(calibrated.scores[best]), calibrated.answerable or 0.0
    return FirstResult(score, right=right, answered=answered, answerable=answerable)


def cross_validated(questions: Sequence[Scored]) -> FirstResultFigures:
    """The figures of first results. Each question is scored by curves that were fitted without its fold."""
    results = []
    for fold in range(FOLDS):
        curves = fitted_curves([each for place, each in enumerate(questions) if place % FOLDS != fold])
        results += [first_result(curves, each) for each in questions[fold::FOLDS]]
    return first_result_figures(results)


def fitted_curves(questions: Sequence[Scored]) -> tuple[StageCurves, ...]:
    """The curves of all stages."""
    return tuple(_curves(questions, stage) for stage in range(len(questions[0].stages)))


def _curves(questions: Sequence[Scored], stage: int) -> StageCurves:
    """The curves of one stage, by maximum likelihood.

    P(any candidate answers) is fitted without the questions on whose candidates the curve has no effect, because all
    are certainly wrong. The rival of a candidate is the one at the last stage, as it is for a dropped candidate.
    """
    any_rows, answered, rows, right = [np.empty((0, 3))], [], [np.empty((0, 3))], [np.empty(0, dtype=np.bool_)]
    for each in questions:
        log_odds, final = limited_log_odds(each.stages[stage]), limited_log_odds(each.final)
        first = int(log_odds.argmax())
        if each.stages[stage][first] > CERTAINLY_WRONG:
            any_rows.append(curve_features(log_odds, _rivals(log_odds))[[first]])
            answered.append(each.right.any())
        if each.right.any():
            best = np.argsort(-log_odds, kind="stable")[:BEST]
            rows.append(curve_features(log_odds, _rivals(final))[best])
            right.append(each.right[best])
    return StageCurves(
        answerable=_logistic(np.concatenate(any_rows), np.array(answered, dtype=np.bool_)),
        candidate=_logistic(np.concatenate(rows), np.concatenate(right)),
    )


def _rivals(log_odds: Floats) -> Floats:
    """The log-odds of the candidates' rivals at one stage."""
    return rival_log_odds(log_odds, np.zeros(len(log_odds), dtype=np.int64))


def _logistic(rows: Floats, flags: Flags) -> Curve:
    """The curve by a logistic regression on `rows` [n, 3], with a rising score and a falling rival.

    Gaussian priors, of variance 1 and for the constant of variance 100, keep the weights finite, also where all flags
    are equal.
    """
    prior = np.array([1.0, 1.0, 0.01])

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = rows @ weights
        value = np.logaddexp(0.0, np.where(flags, -logits, logits)).sum() + 0.5 * (prior * weights**2).sum()
        return float(value), rows.T @ (sigmoid(logits) - flags) + prior * weights

    bounds = ((FLATTEST, None), (0.0, None), (None, None))
    score, rival, constant = minimize(loss, np.zeros(3), jac=True, method="L-BFGS-B", bounds=bounds).x.tolist()
    return Curve(score=score, rival=rival, constant=constant)


def precision_thresholds(firsts: Sequence[FirstResult]) -> tuple[Threshold, ...]:
    """A threshold for each of PRECISIONS that can be guaranteed with CONFIDENCE.

    They are found by fixed-sequence testing (Angelopoulos et al., 2021, Learn then Test): first results are added in
    the order of falling scores, as long as the lower Clopper-Pearson bound of their precision is not below the wanted
    one. The sequence begins at each of STARTS, which share the error, so that one wrong label among the highest scores
    does not end it. Results with equal scores are added together, because a threshold cannot separate them.
    """
    best = sorted(firsts, key=lambda each: -each.score)
    scores = -np.array([each.score for each in best])
    hits = np.cumsum([each.right for each in best])
    confidence = 1.0 - (1.0 - CONFIDENCE) / len(STARTS)
    thresholds = []
    for wanted in PRECISIONS:
        passed = 0
        for start in STARTS:
            least = max(1, round(start * len(best)))
            while passed < least <= len(best):
                taken = int(np.searchsorted(scores, scores[least - 1], side="right"))
                if lower_bound(int(hits[taken - 1]), taken, confidence) < wanted:
                    break
                passed, least = taken, taken + max(1, taken // 20)
        if passed:
            thresholds.append(_threshold(wanted, best[passed - 1].score, best, confidence))
    return tuple(thresholds)


def _threshold(
    wanted: float, threshold: float, firsts: Sequence[FirstResult], confidence: float, bound: float | None = None
) -> Threshold:
    """The row of a threshold with what the first results reach; `bound` is that of the precision if it is None."""
    above = [each for each in firsts if each.score >= threshold]
    answered = sum(each.answered for each in above)
    right = sum(each.right for each in above)
    return Threshold(
        wanted=wanted,
        threshold=threshold,
        precision=right / max(1, len(above)),
        recall=right / max(1, sum(each.answered for each in firsts)),
        bound=lower_bound(right, len(above), confidence) if bound is None else bound,
        precision_answered=right / max(1, answered),
        bound_answered=lower_bound(right, answered, confidence),
    )


def lower_bound(right: int, of: int, confidence: float) -> float:
    """Clopper and Pearson's lower bound of a share.

    >>> round(lower_bound(22, 22, 0.9), 3), lower_bound(0, 5, 0.9)
    (0.901, 0.0)
    """
    return float(beta.ppf(1.0 - confidence, right, of - right + 1)) if right else 0.0


def _recall_thresholds(
    calibration: Calibration, questions: Sequence[Scored], firsts: Sequence[FirstResult]
) -> tuple[Threshold, ...]:
    """A threshold for each of RECALLS that best answers reach this often (split conformal prediction)."""
    last = len(calibration.stages) - 1
    answers = np.sort(
        [
            probabilities(calibration.stages, each.final, np.full(len(each.right), last)).scores[each.right].max()
            for each in questions
            if each.right.any()
        ]
    )
    places = {wanted: math.floor((len(answers) + 1) * (1.0 - wanted)) for wanted in RECALLS}
    return tuple(
        _threshold(wanted, float(answers[place - 1]), firsts, CONFIDENCE, bound=1.0 - place / (len(answers) + 1))
        for wanted, place in places.items()
        if place >= 1
    )
