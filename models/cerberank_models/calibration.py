"""Turns a checkpoint's raw scores into probabilities, with numbers fitted on held-out questions (`calibration.json`).

The input is the raw scores of one question's candidates and the stages that gave them. The output is P(the candidate
answers) for each candidate, and P(any of them answers). `cerberank eval calibrate` fits the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from cerberank_models.transformer import Frozen

HEAVIEST = 1000.0
"""The largest magnitude of a weight or a constant. Fitted weights are below 2; with weights of 1e308 the sums would be
infinite, and their differences not a number."""
Weight = Annotated[float, Field(ge=-HEAVIEST, le=HEAVIEST, allow_inf_nan=False)]
FILE = "calibration.json"
"""The name of the file in a checkpoint."""
SECTION = "Calibrated scores"
"""The section of the model card that describes the calibration."""
TOP = 5
"""The number of a question's highest scores from which P(any candidate answers) is computed."""
Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]
CERTAIN = 1e-12
"""Scores are clipped to at least this distance from 0 and 1, because float64 has few digits left closer to 1."""
LARGEST = 12.0
"""Log-odds are clipped to this magnitude: raw scores of 0 and 1 have infinite log-odds, and raw scores beyond .999994
differ only by rounding."""
COPY_GAP = 1.0
"""The largest difference of the log-odds of two copies of a text, which may differ in case, blanks or truncation."""
LARGEST_LEAD = 4.0
"""The limit of a lead over the rival. If no candidate answers, all rivals are low, and the lead must not raise a lone
high score. On WikiQA's raw dev set (170 of 296 questions without an answer, cerberank-mini 2.0.1) recall at a precision
of .85 is .11 with the limit and .02 without it. The cost is .001 in Brier score on the domains' dev sets."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class CalibrationError(ValueError):
    """The checkpoint is not calibrated, or no threshold of it reaches the precision; the message says what to do."""


class Curve(Frozen):
    """The curve P(a candidate answers) = `sigmoid(score * x + lead * min(x - r, LARGEST_LEAD) + constant)`.

    x is the log-odds of the candidate's raw score, and r is that of its rival, the question's best other candidate. The
    weight `lead` is positive because a high score is right less often beside another high score; with `lead` 0 the
    formula is Platt's scaling. `score` > 0 and `lead` >= 0 keep the order of candidates within a stage.
    """

    score: Annotated[float, Field(gt=0.0, le=HEAVIEST, allow_inf_nan=False)]
    lead: Annotated[float, Field(ge=0.0, le=HEAVIEST, allow_inf_nan=False)]
    constant: Weight


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


Thresholds = Annotated[tuple[Threshold, ...], Field(max_length=200)]


class CalibrationData(Frozen):
    """The questions that a calibration was fitted on."""

    sets: tuple[str, ...]
    """Names of data sets, without folders."""
    questions: Annotated[int, Field(ge=1)]
    unanswered: Annotated[int, Field(ge=0)]
    """The number of questions without an answer among their candidates."""
    removed: Annotated[int, Field(ge=0)]
    """The number of additional questions made by removing the answers from answered ones, used to fit `answerable`."""
    candidates: Annotated[int, Field(ge=1)]
    precision: str
    """The precision in which the network computed the raw scores."""


class Calibration(Frozen):
    """The content of `calibration.json`."""

    format: Annotated[int, Field(ge=1, le=1)] = 1
    curves: Annotated[tuple[Curve, ...], Field(min_length=1)]
    """One curve for each scored stage, in order."""
    alone: Weight
    """The rival's log-odds for a candidate without a rival: the median of the calibration questions' second scores."""
    answerable: Annotated[tuple[Weight, ...], Field(min_length=TOP + 1, max_length=TOP + 1)]
    """Weights of the TOP highest log-odds in falling order, then a constant. The sigmoid of the weighted sum is P(any
    candidate answers) (arXiv 2402.12997, section 3). A question with fewer candidates repeats its lowest log-odds."""
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

    def scores(self, raw: Scores, stages: NDArray[np.int64], copies: Flags | None = None) -> Scores:
        """P(the candidate answers) for each candidate, NaN where `raw` is NaN. All arrays have shape [n].

        `stages` are the stages that gave the raw scores, counted from 0. The rival of a candidate is the best other
        candidate in the order of the ranking, in which later stages come first. `copies` of the first result are not
        rivals of the first result.
        """
        x = limited_log_odds(raw)
        weights = np.array([(curve.score, curve.lead, curve.constant) for curve in self.curves])[stages]
        return sigmoid((weights * curve_rows(x, rival_odds(x, stages, self.alone, copies))).sum(axis=1))

    def any_answers(self, raw: Scores, stages: NDArray[np.int64], copies: Flags | None = None) -> float | None:
        """P(any candidate answers), from the scores of the last stage; None if a deadline passed before that stage."""
        last = stages == len(self.curves) - 1
        scores = raw[last if copies is None else last & ~copies]
        if not len(scores):
            return None
        return float(sigmoid(answerable_row(limited_log_odds(scores)) @ np.array(self.answerable)))

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


@dataclass(frozen=True, slots=True)
class Probabilities:
    """The calibrated scores of a question with n candidates."""

    scores: Scores
    """Shape [n]: P(the candidate answers), NaN without a raw score."""
    answerable: float | None
    """P(any candidate answers); None if a deadline passed before the last stage."""


def probabilities(
    calibration: Calibration, raw: Scores, stages: NDArray[np.int64], texts: Sequence[str]
) -> Probabilities:
    """The probabilities of candidates with these raw scores [n], stages [n] and texts."""
    copies = copies_of_first(limited_log_odds(raw), stages, texts)
    return Probabilities(calibration.scores(raw, stages, copies), calibration.any_answers(raw, stages, copies))


def copies_of_first(odds: Scores, stages: NDArray[np.int64], texts: Sequence[str]) -> Flags:
    """Shape [n]: True for other candidates with the first result's text; case, blanks and context may differ.

    Lists of search results often hold such copies, and both may be right. Only candidates of the same stage whose
    log-odds are within COPY_GAP of the first result's are compared.

    >>> copies_of_first(np.array([2.0, 1.9, 1.8]), np.array([1, 1, 1]), ["The  Rhine", "the rhine ", "Bonn"]).tolist()
    [False, True, False]
    """
    first = np.lexsort((-odds, -stages))[0]
    near = np.flatnonzero((stages == stages[first]) & (np.abs(odds - odds[first]) <= COPY_GAP))
    copies = np.zeros(len(odds), dtype=np.bool_)
    if len(near) > 1:
        known = folded(texts[first])
        copies[near] = [folded(texts[index]) == known for index in near.tolist()]
        copies[first] = False
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
        raise CalibrationError("min_precision: this model is not calibrated; `cerberank eval calibrate` does that")
    return calibration.threshold_for(min_precision)


def log_odds(scores: Scores) -> Scores:
    """The log-odds of probabilities, which are clipped to `CERTAIN` from 0 and 1; NaN stays NaN."""
    certain = np.clip(scores, CERTAIN, 1.0 - CERTAIN)
    return np.asarray(np.log(certain) - np.log1p(-certain))


def limited_log_odds(scores: Scores) -> Scores:
    """The log-odds of raw scores as the curves read them, within +-LARGEST; NaN stays NaN.

    >>> limited_log_odds(np.array([0.5, 1.0, 0.0])).tolist()
    [0.0, 12.0, -12.0]
    """
    limited: Scores = np.clip(log_odds(scores), -LARGEST, LARGEST)
    return limited


def rival_odds(odds: Scores, stages: NDArray[np.int64], alone: float, copies: Flags | None = None) -> Scores:
    """The log-odds of each candidate's rival: the first result, or for the first result and its `copies` the next one.

    If no other candidate has a score, the value is `alone`.

    >>> rival_odds(np.array([1.0, 3.0, 9.0]), np.array([1, 1, 0]), alone=-4.0).tolist()
    [3.0, 1.0, 3.0]
    """
    ranked = np.lexsort((-odds, -stages))
    same = np.zeros(len(odds), dtype=np.bool_) if copies is None else copies.copy()
    same[ranked[0]] = True
    others = ranked[~same[ranked]][:1]
    rivals = np.full(len(odds), odds[ranked[0]])
    rivals[same] = odds[others[0]] if len(others) and not np.isnan(odds[others[0]]) else alone
    return rivals


def curve_rows(odds: Scores, rivals: Scores) -> Scores:
    """The features that a curve weights, shape [n, 3]: log-odds, lead over the rival, and 1 for the constant."""
    return np.stack([odds, np.minimum(odds - rivals, LARGEST_LEAD), np.ones(len(odds))], axis=1)


def sigmoid(logits: Scores) -> Scores:
    """The probabilities that have these log-odds."""
    with np.errstate(over="ignore"):  # an infinite power gives the probability 0
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))


def answerable_row(odds: Scores) -> Scores:
    """The features that `Calibration.answerable` weights: the TOP highest of a question's log-odds, and 1.

    >>> answerable_row(np.array([-2.0, 3.0])).tolist()
    [3.0, -2.0, -2.0, -2.0, -2.0, 1.0]
    """
    top = -np.sort(-odds)[:TOP]
    return np.concatenate([top, np.full(TOP - len(top), top[-1]), [1.0]])
