"""Fits a calibration, which turns a checkpoint's raw scores into probabilities, on held-out questions.

Input: the scores of all stages for these questions, with labels. Output: a `Calibration`, and figures by
cross-validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import beta

from cerberank_models.calibration import (
    TOP,
    Calibration,
    CalibrationData,
    Curve,
    Threshold,
    answerable_row,
    curve_rows,
    limited_log_odds,
    rival_odds,
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
LAST, EXIT = 2, 10
"""The number of best candidates of a question on which the last stage's curve and an exit's curve are fitted.

With cerberank-mini 2.0.1 and 694 questions of 11 dev sets, the calibration error of first results and of all candidates
is .026 and .009 with the best two candidates of the last stage, .041 and .007 with ten, and .055 and .004 with all. An
exit needs more, because its scores are shown for the candidates that it drops."""
FLATTEST = 1e-3
"""The least weight of a score, which keeps the order of candidates even for an exit with uninformative scores."""
CONFIDENCE = 0.9
PRECISIONS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)
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

    def without_answers(self) -> Scored:
        """The question with only its wrong candidates."""
        return Scored(tuple(scores[~self.right] for scores in self.stages), self.right[~self.right])


def check_number(questions: int) -> None:
    """Raise DataError for fewer than FEWEST questions."""
    if questions < FEWEST:
        raise DataError(f"{questions} questions are too few to calibrate on: at least {FEWEST}, better 300")


def fit(questions: Sequence[Scored], *, sets: Iterable[str], precision: str) -> Calibration:
    """Fit the calibration on these questions; `precision` is the number format of their scores.

    Raises DataError if the best candidates are all right or all wrong, and if neither the scores nor the leads over the
    rivals are higher for right candidates.
    """
    # A candidate without rivals is compared with a typical second candidate.
    seconds = [limited_log_odds(-np.sort(-each.final)[1:2]) for each in questions if len(each.final) > 1]
    if not seconds:
        raise DataError("every question has one candidate: there is nothing to compare")
    alone = float(np.median(np.concatenate(seconds)))
    # Copies without their right candidates stand for questions without an answer.
    stages = len(questions[0].stages)
    removed = [each.without_answers() for each in questions if each.right.any() and not each.right.all()]
    calibration = Calibration(
        curves=tuple(_curve(questions, stage, alone) for stage in range(stages)),
        alone=alone,
        answerable=_answerable([*questions, *removed]),
        precision=(),
        recall=(),
        confidence=CONFIDENCE,
        mean_score=0.5,
        mean_answerable=0.5,
        data=CalibrationData(
            sets=tuple(sets),
            questions=len(questions),
            unanswered=sum(not each.right.any() for each in questions),
            removed=len(removed),
            candidates=sum(len(each.right) for each in questions),
            precision=precision,
        ),
    )
    # Thresholds and means are of the first results' calibrated scores.
    firsts = [first_result(calibration, each) for each in questions]
    return calibration.model_copy(
        update={
            "precision": precision_thresholds(firsts),
            "recall": _recall_thresholds(calibration, questions, firsts),
            "mean_score": float(np.mean([each.score for each in firsts])),
            "mean_answerable": float(np.mean([each.answerable for each in firsts])),
        }
    )


def first_result(calibration: Calibration | None, question: Scored) -> FirstResult:
    """The first result of a question without drops. Its score is calibrated if there is a calibration."""
    best = int(np.argmax(question.final))
    right, answered = bool(question.right[best]), bool(question.right.any())
    raw = float(question.final[best])
    if calibration is None:
        return FirstResult(raw, right=right, answered=answered, answerable=raw)
    stages = np.full(len(question.right), len(calibration.curves) - 1)
    score = float(calibration.scores(question.final, stages)[best])
    answerable = calibration.any_answers(question.final, stages)
    assert answerable is not None, "every candidate has a score"
    return FirstResult(score, right=right, answered=answered, answerable=answerable)


def cross_validated(
    questions: Sequence[Scored], fitted: Callable[[Sequence[Scored]], Calibration]
) -> FirstResultFigures | None:
    """The figures of first results. Each question is scored by a calibration that was fitted without its fold.

    None if no calibration fits the questions without some fold, although one fits all of them.
    """
    results = []
    for fold in range(FOLDS):
        try:
            calibration = fitted([each for place, each in enumerate(questions) if place % FOLDS != fold])
        except DataError:
            return None
        results += [first_result(calibration, each) for each in questions[fold::FOLDS]]
    return first_result_figures(results)


def _curve(questions: Sequence[Scored], stage: int, alone: float) -> Curve:
    """The curve of one stage, by maximum likelihood. The rival's score is always its score at the last stage."""
    last = stage == len(questions[0].stages) - 1
    rows, right = [], []
    for each in questions:
        odds = limited_log_odds(each.stages[stage])
        rivals = rival_odds(limited_log_odds(each.final), np.zeros(len(odds), dtype=np.int64), alone)
        best = np.argsort(-odds, kind="stable")[: LAST if last else EXIT]
        rows.append(curve_rows(odds[best], rivals[best]))
        right.append(each.right[best])
    flags = np.concatenate(right)
    if flags.all() or not flags.any():
        raise DataError(f"the best candidates are all {'right' if flags.all() else 'wrong'}: no probability fits them")
    score, lead, constant = _logistic(np.concatenate(rows), flags, bounds=((FLATTEST, None), (0.0, None), (None, None)))
    # A lead suffices: the scores of a ranker that learnt by comparison only compare within a question.
    if last and score <= FLATTEST and lead <= 0.0:
        raise DataError("the scores are not higher for right candidates than for wrong ones")
    return Curve(score=score, lead=lead, constant=constant)


def _answerable(questions: Sequence[Scored]) -> tuple[float, ...]:
    rows = np.stack([answerable_row(limited_log_odds(each.final)) for each in questions])
    return _logistic(rows, np.array([each.right.any() for each in questions]), bounds=((None, None),) * (TOP + 1))


def _logistic(rows: Floats, flags: Flags, *, bounds: Sequence[tuple[Any, Any]]) -> tuple[float, ...]:
    """The weights of a logistic regression on `rows` [n, f].

    A Gaussian prior of variance 1 keeps the weights of separable data finite. The last feature is the constant, which
    has no prior.
    """
    prior = np.append(np.ones(rows.shape[1] - 1), 0.0)

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = rows @ weights
        value = np.logaddexp(0.0, np.where(flags, -logits, logits)).sum() + 0.5 * (prior * weights**2).sum()
        return float(value), rows.T @ (sigmoid(logits) - flags) + prior * weights

    solution = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds)
    return tuple(float(weight) for weight in solution.x)


def precision_thresholds(firsts: Sequence[FirstResult]) -> tuple[Threshold, ...]:
    """A threshold for each of PRECISIONS that can be guaranteed with CONFIDENCE.

    They are found by fixed-sequence testing (Angelopoulos et al., 2021, Learn then Test): first results are added in
    the order of falling scores, as long as the lower Clopper-Pearson bound of their precision is not below the wanted
    one. Results with equal scores are added together, because a threshold cannot separate them.
    """
    best = sorted(firsts, key=lambda each: -each.score)
    scores = -np.array([each.score for each in best])
    hits = np.cumsum([each.right for each in best])
    answered = max(1, sum(each.answered for each in best))
    thresholds = []
    for wanted in PRECISIONS:
        # Twice the number of results that would be enough if all were right, so that one may be wrong.
        least, passed = 2 * math.ceil(math.log(1.0 - CONFIDENCE) / math.log(wanted)), 0
        while least <= len(best):
            taken = int(np.searchsorted(scores, scores[least - 1], side="right"))
            if lower_bound(int(hits[taken - 1]), taken) < wanted:
                break
            passed, least = taken, taken + max(1, taken // 20)
        if passed:
            right = int(hits[passed - 1])
            thresholds.append(
                Threshold(
                    wanted=wanted,
                    threshold=best[passed - 1].score,
                    precision=right / passed,
                    recall=right / answered,
                    bound=lower_bound(right, passed),
                )
            )
    return tuple(thresholds)


def lower_bound(right: int, of: int) -> float:
    """Clopper and Pearson's lower bound of a share at CONFIDENCE.

    >>> round(lower_bound(22, 22), 3), lower_bound(0, 5)
    (0.901, 0.0)
    """
    return float(beta.ppf(1.0 - CONFIDENCE, right, of - right + 1)) if right else 0.0


def _recall_thresholds(
    calibration: Calibration, questions: Sequence[Scored], firsts: Sequence[FirstResult]
) -> tuple[Threshold, ...]:
    """A threshold for each of RECALLS that best answers reach this often (split conformal prediction)."""
    last = len(calibration.curves) - 1
    answers = np.sort(
        [
            calibration.scores(each.final, np.full(len(each.right), last))[each.right].max()
            for each in questions
            if each.right.any()
        ]
    )
    thresholds = []
    for wanted in RECALLS:
        place = math.floor((len(answers) + 1) * (1.0 - wanted))
        if place >= 1:
            threshold = float(answers[place - 1])
            above = [each for each in firsts if each.score >= threshold]
            right = sum(each.right for each in above)
            thresholds.append(
                Threshold(
                    wanted=wanted,
                    threshold=threshold,
                    precision=right / max(1, len(above)),
                    recall=right / len(answers),
                    bound=1.0 - place / (len(answers) + 1),
                )
            )
    return tuple(thresholds)
