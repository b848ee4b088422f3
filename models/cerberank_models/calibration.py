"""The meaning of a checkpoint's scores: probabilities fitted on held-out questions, as `calibration.json` states them.

In: raw scores of one question's candidates, and the stages that gave them. Out: P(the candidate answers) for each, and
P(any of them answers). `cerberank eval calibrate` fits the numbers; this module applies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from cerberank_models.transformer import Frozen

Finite = Annotated[float, Field(allow_inf_nan=False)]
FILE = "calibration.json"
"""The name of the file in a checkpoint."""
SECTION = "Calibrated scores"
"""The section of the model card that tells of it."""
TOP = 5
"""Scores of a question, the highest ones, that tell whether anything answers it."""
Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]
LARGEST = 12.0
"""Log-odds are cut at this: raw scores of 0 and 1 have none, and those beyond .999994 differ by rounding alone."""
COPY_GAP = 1.0
"""Log-odds by which the scores of one text may differ that is written or cut otherwise."""
LARGEST_LEAD = 4.0
"""A lead over the rival beyond this says no more. Where nothing answers, all rivals are low, and a lone high score must
not gain by it: on WikiQA's raw dev set (170 of 296 questions without an answer, cerberank-mini 2.0.1) recall at a
precision of .85 is .11 with this bound and .02 without it, for .001 of Brier score on the domains' dev sets."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class CalibrationError(ValueError):
    """The checkpoint is not calibrated, or no threshold of it gives what was wanted; the message says what to do."""


class Curve(Frozen):
    """P(a candidate answers) by the log-odds x of its raw score and r of its rival's: `sigmoid(a x + b (x - r) + c)`.

    The rival is the question's best other candidate, and the lead x - r counts up to LARGEST_LEAD. Platt's scaling is
    the case b = 0. A high score is right less often beside another high score, so b is positive; with a > 0 and b >= 0
    the order within a stage stays.
    """

    score: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
    lead: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    constant: Finite


class Threshold(Frozen):
    """A calibrated score of first results, what it gives on the calibration questions, and what it guarantees."""

    wanted: Share
    threshold: Share
    precision: Share
    """Share of the questions whose first result reaches the threshold that have a right one there."""
    recall: Share
    """Share of the questions with an answer whose first result is right and reaches the threshold."""
    bound: Share
    """The wanted quantity is at least this on other questions like these (`Calibration.confidence`)."""


class CalibrationData(Frozen):
    """The questions that a calibration was fitted on."""

    sets: tuple[str, ...]
    """Names of data sets, without folders."""
    questions: Annotated[int, Field(ge=1)]
    unanswered: Annotated[int, Field(ge=0)]
    """Those without an answer among their candidates."""
    removed: Annotated[int, Field(ge=0)]
    """Copies of answered questions without their answers, which `answerable` alone was fitted on too."""
    candidates: Annotated[int, Field(ge=1)]
    precision: str
    """The number format of the scores."""


class Calibration(Frozen):
    """`calibration.json`."""

    format: Annotated[int, Field(ge=1, le=1)] = 1
    curves: Annotated[tuple[Curve, ...], Field(min_length=1)]
    """One for each scored stage, in order."""
    alone: Finite
    """Log-odds of the rival of a candidate that has none: the median of the calibration questions' second scores."""
    answerable: Annotated[tuple[Finite, ...], Field(min_length=TOP + 1, max_length=TOP + 1)]
    """P(any candidate answers) is the sigmoid of these weights of the TOP highest log-odds, in falling order, and a
    constant at the end (arXiv 2402.12997, section 3). A question with fewer candidates repeats its lowest one."""
    precision: tuple[Threshold, ...]
    """Thresholds by the precision that is wanted, ascending; a precision that cannot be had is missing."""
    recall: tuple[Threshold, ...]
    """Thresholds by the recall that is wanted: the share of answered questions whose best answer reaches it."""
    confidence: Share
    """With this probability over the choice of calibration questions, a bound of `precision` holds."""
    mean_score: Share
    """Mean calibrated score of first results on the calibration questions, to compare with what is served."""
    mean_answerable: Share
    data: CalibrationData

    @model_validator(mode="after")
    def _check(self) -> Self:
        for rows in (self.precision, self.recall):
            if list(rows) != sorted(rows, key=lambda row: row.wanted):
                raise ValueError("thresholds must be listed by what is wanted, ascending")
        return self

    def scores(self, raw: Scores, stages: NDArray[np.int64], copies: Flags | None = None) -> Scores:
        """P(the candidate answers) for each of n candidates, NaN where `raw` is: shapes [n].

        `stages` are those of the scores, counted from 0. The rival of every candidate is the best other one in the
        order of the ranking, a later stage first; `copies` of the first result are not its rivals.
        """
        x = log_odds(raw)
        weights = np.array([(curve.score, curve.lead, curve.constant) for curve in self.curves])[stages]
        return sigmoid((weights * curve_rows(x, rival_odds(x, stages, self.alone, copies))).sum(axis=1))

    def any_answers(self, raw: Scores, stages: NDArray[np.int64], copies: Flags | None = None) -> float | None:
        """P(any candidate answers) by the scores of the last stage; None where a deadline came before it."""
        last = stages == len(self.curves) - 1
        scores = raw[last if copies is None else last & ~copies]
        return float(sigmoid(answerable_row(log_odds(scores)) @ np.array(self.answerable))) if len(scores) else None

    def threshold_for(self, min_precision: float) -> float:
        """The calibrated score from which on first results are right with at least this precision, of 0 to 1.

        That is the threshold of the next listed precision. Raises CalibrationError where none is high enough, and for
        what cannot be a precision.
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
    """P(any candidate answers); None where a deadline came before the last stage."""


def probabilities(
    calibration: Calibration, raw: Scores, stages: NDArray[np.int64], texts: Sequence[str]
) -> Probabilities:
    """The probabilities of candidates with these raw scores [n] at these stages [n], and these texts."""
    copies = copies_of_first(log_odds(raw), stages, texts)
    return Probabilities(calibration.scores(raw, stages, copies), calibration.any_answers(raw, stages, copies))


def copies_of_first(odds: Scores, stages: NDArray[np.int64], texts: Sequence[str]) -> Flags:
    """Shape [n]: the other candidates with the text of the first result, whatever their case, blanks and context.

    Lists of search results often have them, and both may be right. Only those of the same stage within COPY_GAP are
    compared.

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
    """The part of a text that its copies share: they may differ in case and blanks.

    >>> folded(" The  Rhine") == folded("the rhine ")
    True
    """
    return " ".join(text.casefold().split())


def threshold_for(calibration: Calibration | None, min_precision: float) -> float:
    """See `Calibration.threshold_for`; a checkpoint without a calibration has none."""
    if calibration is None:
        raise CalibrationError("min_precision: this model is not calibrated; `cerberank eval calibrate` does that")
    return calibration.threshold_for(min_precision)


def log_odds(scores: Scores) -> Scores:
    """Log-odds of probabilities, cut at LARGEST; NaN stays NaN.

    >>> log_odds(np.array([0.5, 1.0, 0.0])).tolist()
    [0.0, 12.0, -12.0]
    """
    with np.errstate(divide="ignore"):
        odds: Scores = np.log(scores) - np.log1p(-scores)
    clipped: Scores = np.clip(odds, -LARGEST, LARGEST)
    return clipped


def rival_odds(odds: Scores, stages: NDArray[np.int64], alone: float, copies: Flags | None = None) -> Scores:
    """The log-odds of each candidate's rival: of the first in the order of the ranking, and for that one the second's.

    `copies` of the first one have its rival. Without another candidate that has a score it is `alone`.

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
    """The features of a curve for n candidates, shape [n, 3]: log-odds, lead over the rival, and 1 for the constant."""
    return np.stack([odds, np.minimum(odds - rivals, LARGEST_LEAD), np.ones(len(odds))], axis=1)


def sigmoid(logits: Scores) -> Scores:
    """Probabilities of log-odds."""
    return np.asarray(1.0 / (1.0 + np.exp(-logits)))


def answerable_row(odds: Scores) -> Scores:
    """The features of `Calibration.answerable` for a question's log-odds [n]: TOP of them, and 1 for the constant.

    >>> answerable_row(np.array([-2.0, 3.0])).tolist()
    [3.0, -2.0, -2.0, -2.0, -2.0, 1.0]
    """
    top = -np.sort(-odds)[:TOP]
    return np.concatenate([top, np.full(TOP - len(top), top[-1]), [1.0]])
