"""Turns a checkpoint's raw scores into probabilities, with numbers fitted on held-out questions (`calibration.json`).

The input is the raw scores of one question's candidates and the stages that gave them. The output is P(any of them
answers), and for each candidate P(it answers), which is a share of it. `cerberank checkpoint calibrate` fits the
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from cerberank_models.transformer import Frozen

LARGEST_WEIGHT = 1000.0
"""The largest magnitude of a weight or a constant. Fitted weights are below 2; with weights of 1e308 the sums would be
infinite, and their differences not a number."""
Weight = Annotated[float, Field(ge=-LARGEST_WEIGHT, le=LARGEST_WEIGHT, allow_inf_nan=False)]
FILE = "calibration.json"
FORMAT = 2
"""The format of the file. Curves of format 1 give a candidate a score above P(any candidate answers)."""
SECTION = "Calibrated scores"
"""The section of the model card that describes the calibration."""
Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]
LEAST_DISTANCE = 1e-12
"""Scores are clipped to at least this distance from 0 and 1, because float64 has few digits left closer to 1."""
LARGEST_LOG_ODDS = 12.0
"""Log-odds are clipped to this magnitude: raw scores of 0 and 1 have infinite log-odds, and raw scores beyond .999994
differ only by rounding."""
CERTAINLY_WRONG, PLAUSIBLE = 0.01, 0.5
"""The raw score of a rival counts within these bounds: a worse one has no effect on other candidates, and a better one
may well be a second answer."""
CURVE_ALONE = 0.03
"""From this highest raw score on, the fitted curve alone gives P(any candidate answers)."""
COPY_GAP = 1.0
"""The largest difference of the log-odds of two copies of a text, which may differ in case, blanks or truncation."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Possible = Annotated[float, Field(gt=0.0, lt=1.0)]


class CalibrationError(ValueError):
    """The checkpoint is not calibrated, or no threshold of it reaches the precision; the message says what to do."""


class Curve(Frozen):
    """The probability `sigmoid(score * x - rival * r + constant)` of a candidate.

    x is the log-odds of its raw score, and r is that of its rival, the question's best other candidate. A high score is
    right less often beside another high score, so `rival` is not negative.
    """

    score: Annotated[float, Field(gt=0.0, le=LARGEST_WEIGHT, allow_inf_nan=False)]
    rival: Annotated[float, Field(ge=0.0, le=LARGEST_WEIGHT, allow_inf_nan=False)]
    constant: Weight


class StageCurves(Frozen):
    """The two curves of a stage. A calibrated score is the product of their probabilities."""

    answerable: Curve
    """P(any candidate answers), from the first result and its rival."""
    candidate: Curve
    """P(a candidate answers | any candidate does), from the candidate and its rival."""


class Threshold(Frozen):
    """A threshold for the calibrated score of first results, with the precision and recall that it reaches."""

    wanted: Share
    threshold: Share
    precision: Share
    """The share of right first results among those that reach the threshold, on the calibration questions."""
    recall: Share
    """The share of calibration questions with an answer whose first result is right and reaches the threshold."""
    bound: Share
    """A lower bound of the wanted quantity on other questions of the same kind (`Calibration.confidence`)."""
    precision_answered: Share
    """`precision` on those calibration questions that have an answer."""
    bound_answered: Share
    """`bound` for other questions that all have an answer."""


Thresholds = Annotated[tuple[Threshold, ...], Field(max_length=200)]


class CalibrationData(Frozen):
    """The questions that a calibration was fitted on."""

    sets: tuple[str, ...]
    """Names of data sets, without folders."""
    questions: Annotated[int, Field(ge=2)]
    unanswered: Annotated[int, Field(ge=1)]
    """The number of questions without an answer among their candidates."""
    removed: Annotated[int, Field(ge=0)]
    """The number of those whose answers were removed for the calibration."""
    candidates: Annotated[int, Field(ge=1)]
    precision: str
    """The precision in which the network computed the raw scores."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.removed <= self.unanswered < self.questions:
            raise ValueError("a calibration needs questions with and without an answer")
        return self


class FileFormat(Frozen, extra="ignore"):
    """The format of a `calibration.json` of any release."""

    format: int


class Calibration(Frozen):
    """The content of `calibration.json`."""

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)] = FORMAT
    stages: Annotated[tuple[StageCurves, ...], Field(min_length=1)]
    """The curves of each scored stage, in order."""
    unanswered: Possible
    """The share of questions without an answer for which the probabilities hold."""
    precision: Thresholds
    """Thresholds by wanted precision, ascending; precisions that no threshold reaches are missing."""
    recall: Thresholds
    """Thresholds by wanted recall: the share of answered questions whose best answer reaches the threshold."""
    confidence: Share
    """The probability, over the choice of calibration questions, with which a bound of `precision` holds."""
    mean_score: Share
    """The mean calibrated score of first results on the calibration questions, to compare with the service's mean."""
    mean_answerable: Share
    data: CalibrationData

    @model_validator(mode="after")
    def _check(self) -> Self:
        for rows in (self.precision, self.recall):
            if list(rows) != sorted(rows, key=lambda row: row.wanted):
                raise ValueError("thresholds must be listed by what is wanted, ascending")
        return self

    def with_unanswered(self, share: float) -> Calibration:
        """The calibration for questions of which this share has no answer. Raises ValueError unless 0 < share < 1.

        The log-odds of `answerable` move by the difference of the log-odds of having an answer. Thresholds stay as
        they are, and the means are those that a calibrated model has.
        """
        if not 0.0 < share < 1.0:
            raise ValueError(f"the share of questions without an answer must lie between 0 and 1, not be {share:g}")
        shift = math.log((1.0 - share) / share) - math.log((1.0 - self.unanswered) / self.unanswered)
        answered_ratio = (1.0 - share) / (1.0 - self.unanswered)
        changes = {
            "stages": tuple(_moved(stage, shift) for stage in self.stages),
            "unanswered": share,
            "mean_score": min(1.0, answered_ratio * self.mean_score),
            "mean_answerable": min(1.0, answered_ratio * self.mean_answerable),
        }
        return self.model_copy(update=changes)

    def threshold_for(self, min_precision: float) -> float:
        """The lowest listed threshold at which first results have at least this precision.

        This is the threshold of the listed precision that is equal or next higher. Raises CalibrationError if no listed
        precision is high enough, or `min_precision` does not lie between 0 and 1.
        """
        if not 0.0 < min_precision < 1.0:
            raise CalibrationError(f"min_precision must lie between 0 and 1, not be {min_precision:g}")
        for row in self.precision:
            if row.wanted >= min_precision - 1e-9:
                return row.threshold
        most = f"the highest is {self.precision[-1].wanted:g}" if self.precision else "none is reached by any threshold"
        raise CalibrationError(
            f"min_precision: no threshold of this model gives a precision of {min_precision:g}: {most}"
        )


def _moved(stage: StageCurves, log_odds: float) -> StageCurves:
    constant = stage.answerable.constant + log_odds
    return stage.model_copy(update={"answerable": stage.answerable.model_copy(update={"constant": constant})})


@dataclass(frozen=True, slots=True)
class Probabilities:
    """The calibrated scores of a question with n candidates."""

    scores: Scores
    """Shape [n]: P(the candidate answers), at most `answerable`; NaN without a raw score."""
    answerable: float | None
    """P(any candidate answers); None if no candidate has a raw score."""


def probabilities(
    curves: Sequence[StageCurves], raw: Scores, stages: NDArray[np.int64], copies: Flags | None = None
) -> Probabilities:
    """The probabilities of candidates with these raw scores [n], NaN without one, and stages [n], counted from 0.

    The rival of the first result is the highest other raw score of any stage, and that of others is the first result.
    `copies` of the first result are not its rivals.
    """
    if np.isnan(raw).all():
        return Probabilities(np.full(len(raw), np.nan), None)
    log_odds = limited_log_odds(raw)
    features = curve_features(log_odds, rival_log_odds(log_odds, stages, copies))
    first = ranked(log_odds, stages)[0]
    weights = np.array([curve_weights(each.candidate) for each in curves])[stages]
    if_any_does = sigmoid((weights * features).sum(axis=1))
    answerable = _any_answers(float(raw[first]), features[first], curves[stages[first]].answerable)
    return Probabilities(answerable * if_any_does, answerable)


def _any_answers(highest: float, features: Scores, curve: Curve) -> float:
    """P(any candidate answers), from the highest raw score of the question and the features of its candidate.

    From CURVE_ALONE on, it is the curve's value. Up to CERTAINLY_WRONG it is at most the raw score, so that candidates
    which are certainly wrong change it by less than CERTAINLY_WRONG. In between it is a mixture of both.
    """
    fitted = float(sigmoid((curve_weights(curve) * features).sum()))
    weight = min(1.0, max(0.0, (highest - CERTAINLY_WRONG) / (CURVE_ALONE - CERTAINLY_WRONG)))
    return weight * fitted + (1.0 - weight) * min(highest, fitted)


def ranked(log_odds: Scores, stages: NDArray[np.int64]) -> NDArray[np.int64]:
    """The candidates in the order of the ranking: by stage, then by log-odds; NaN comes last within a stage."""
    return np.lexsort((-log_odds, -stages))


def copies_of_first(log_odds: Scores, stages: NDArray[np.int64], texts: Sequence[str]) -> Flags:
    """Shape [n]: True for candidates that follow the first result and have its text; case and blanks may differ.

    Lists of search results often hold such copies, and both may be right. Only candidates of the same stage whose
    log-odds are within COPY_GAP of the first result's are compared, and only those before any other text, so that
    scores fall in the order of the ranking.

    >>> copies_of_first(np.array([2.0, 1.9, 1.8]), np.array([1, 1, 1]), ["The  Rhine", "the rhine ", "Bonn"]).tolist()
    [False, True, False]
    """
    copies = np.zeros(len(log_odds), dtype=np.bool_)
    order = ranked(log_odds, stages).tolist()
    for index in order[1:]:
        near = stages[index] == stages[order[0]] and log_odds[order[0]] - log_odds[index] <= COPY_GAP
        if not near or folded(texts[index]) != folded(texts[order[0]]):
            break
        copies[index] = True
    return copies


def folded(text: str) -> str:
    """The text without differences of case and blanks, so that copies are equal.

    >>> folded(" The  Rhine") == folded("the rhine ")
    True
    """
    return " ".join(text.casefold().split())


def threshold_for(calibration: Calibration | None, min_precision: float) -> float:
    """The threshold by `Calibration.threshold_for`. Raises CalibrationError if the checkpoint is not calibrated."""
    if calibration is None:
        raise CalibrationError("min_precision: this model is not calibrated; `cerberank checkpoint calibrate` does it")
    return calibration.threshold_for(min_precision)


def log_odds_of(scores: Scores) -> Scores:
    """The log-odds of probabilities, which are clipped to `LEAST_DISTANCE` from 0 and 1; NaN stays NaN."""
    clipped = np.clip(scores, LEAST_DISTANCE, 1.0 - LEAST_DISTANCE)
    return np.asarray(np.log(clipped) - np.log1p(-clipped))


def limited_log_odds(scores: Scores) -> Scores:
    """The log-odds of raw scores as the curves read them, within +-LARGEST_LOG_ODDS; NaN stays NaN.

    >>> limited_log_odds(np.array([0.5, 1.0, 0.0])).tolist()
    [0.0, 12.0, -12.0]
    """
    limited: Scores = np.clip(log_odds_of(scores), -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
    return limited


def rival_log_odds(log_odds: Scores, stages: NDArray[np.int64], copies: Flags | None = None) -> Scores:
    """The log-odds of each candidate's rival: the first result, or for it and its `copies` the highest other ones.

    They are limited to those of CERTAINLY_WRONG, which is also the value without a rival, and of PLAUSIBLE. A candidate
    of an earlier stage counts at most as the first result does, so that scores fall in the order of the ranking.

    >>> rival_log_odds(np.array([-2.0, -1.0, -1.5]), np.array([1, 1, 0])).tolist()
    [-1.0, -1.5, -1.0]
    """
    order = ranked(log_odds, stages)
    is_first = np.zeros(len(log_odds), dtype=np.bool_) if copies is None else copies.copy()
    is_first[order[0]] = True
    rivals = np.full(len(log_odds), log_odds[order[0]])
    rivals[is_first] = np.fmin(np.fmax.reduce(log_odds[~is_first], initial=-LARGEST_LOG_ODDS), log_odds[order[0]])
    lowest, highest = log_odds_of(np.array([CERTAINLY_WRONG, PLAUSIBLE])).tolist()
    return np.asarray(np.fmin(np.fmax(rivals, lowest), highest))


def curve_features(log_odds: Scores, rivals: Scores) -> Scores:
    """The features that a curve weights, shape [n, 3]: log-odds, the rival's with the sign changed, and 1."""
    return np.stack([log_odds, -rivals, np.ones(len(log_odds))], axis=1)


def curve_weights(curve: Curve) -> Scores:
    """The weights of the features, shape [3]."""
    return np.array([curve.score, curve.rival, curve.constant])


def sigmoid(logits: Scores) -> Scores:
    """The probabilities that have these log-odds."""
    with np.errstate(over="ignore"):  # an infinite power gives the probability 0
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))
