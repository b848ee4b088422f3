from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from cerberank_models.calibration import Calibration
from cerberank_models.encoding import Candidate
from cerberank_training.data import DataError, LabelledCandidate, Question
from cerberank_training.evaluation.calibration_fit import (
    Scored,
    check_curves,
    check_questions,
    cross_validated,
    first_result,
    fit,
    lower_bound,
    precision_thresholds,
)
from cerberank_training.evaluation.first_results import FirstResult, first_result_figures


def sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-logits)))


def questions(count: int, *, seed: int, steepness: float = 4.0, answered: float = 0.5) -> list[Scored]:
    """Questions with 2 to 12 candidates, one of them right, or none in half of them.

    The network's log-odds are `steepness` times what would be true: with 4, it is far too sure.
    """
    rng, made = np.random.default_rng(seed), []
    for _ in range(count):
        size = int(rng.integers(2, 13))
        right = np.zeros(size, dtype=bool)
        right[0] = rng.random() < answered
        logits = rng.normal(-1.5, 1.0, size) + 2.0 * right
        made.append(Scored((sigmoid(0.5 * steepness * logits), sigmoid(steepness * logits)), right))
    return made


def fitted(rows: list[Scored]) -> Calibration:
    return fit(rows, sets=("a",), precision="fp32", removed=0)


def figures(calibration: Calibration | None, rows: list[Scored]) -> tuple[float, float]:
    got = first_result_figures([first_result(None if calibration is None else calibration.stages, row) for row in rows])
    return got.ece, got.brier


def test_three_hundred_questions_halve_the_error_on_others() -> None:
    """An overconfident network: the error on 2,000 other questions is below half of it, and the Brier score falls."""
    calibration, others = fitted(questions(300, seed=1)), questions(2000, seed=2)
    before, after = figures(None, others), figures(calibration, others)
    assert after[0] < 0.5 * before[0]
    assert after[0] < 0.06  # standard error of a bin of 200 questions: .035 at most, of 300 fitted ones: .03
    assert after[1] < before[1]


def test_figures_of_the_cross_validation_are_those_of_other_questions() -> None:
    """Within two standard errors of a Brier score of 300 questions, .02 each."""
    rows = questions(300, seed=3)
    got = cross_validated(rows)
    assert got.questions == 300
    assert got.brier == pytest.approx(figures(fitted(rows), questions(2000, seed=4))[1], abs=0.04)


def test_scores_that_only_compare_within_a_question_are_calibrated_by_their_rivals() -> None:
    """A listwise loss leaves each question's scores at a level of their own, so that only a comparison tells anything.

    One fold or the other would fit a falling curve of the score alone; none of them fails.
    """
    rng, rows = np.random.default_rng(12), []
    for number in range(300):
        right = (np.arange(4) == 0) & (number % 2 == 0)
        logits = rng.normal(0.0, 1.0, 4) + 2.0 * right
        # The level rises where the wrong candidates lead: alone, high scores are right less often.
        level = rng.normal(0.0, 1.0) + (2.0 if logits.argmax() else -2.0)
        rows.append(Scored((sigmoid(logits + level),), right))
    calibration = fitted(rows)
    check_curves(calibration)
    (stage,) = calibration.stages
    assert stage.candidate.rival > 0.1
    before, after = figures(None, rows), figures(calibration, rows)
    assert after[1] < before[1]
    assert cross_validated(rows).brier < before[1]


def test_a_fold_without_a_wrong_candidate_fits_as_well() -> None:
    """One answered question has the only wrong candidate beside right ones: without it, all labels are equal."""
    rows = [Scored((np.array([0.8, 0.7]),), np.array([True, True]))] * 59
    rows += [Scored((np.array([0.3]),), np.array([False]))] * 40
    rows.append(Scored((np.array([0.9, 0.01]),), np.array([True, False])))
    check_curves(fitted(rows))
    assert cross_validated(rows).ece < 0.1


def test_a_threshold_keeps_its_precision_on_other_questions_as_often_as_it_promises() -> None:
    """Forty draws of 300 questions with true probabilities: at most a tenth may fail; 9 failures have P < .01."""
    rng, failed, rows_found = np.random.default_rng(7), 0, 0

    def firsts(count: int) -> list[FirstResult]:
        scores = rng.uniform(0.2, 1.0, count)
        return [FirstResult(float(s), right=bool(rng.random() < s), answered=True, answerable=1.0) for s in scores]

    for _ in range(40):
        rows = {row.wanted: row for row in precision_thresholds(firsts(300))}
        if 0.8 in rows:
            rows_found += 1
            threshold = rows[0.8].threshold
            failed += (threshold + 1.0) / 2.0 < 0.8  # the mean of uniform scores from the threshold to 1
            assert rows[0.8].bound >= 0.8
    assert rows_found >= 30
    assert failed <= 9


def test_equal_scores_stand_or_fall_together() -> None:
    """85 % of the questions have the same score, of which three in five are right: no threshold can leave some out."""
    rows = [FirstResult(0.99, right=True, answered=True, answerable=1.0)] * 45
    rows += [FirstResult(0.8, right=place % 5 < 3, answered=True, answerable=1.0) for place in range(255)]
    thresholds = {row.wanted: row for row in precision_thresholds(rows)}
    assert thresholds[0.9].threshold == thresholds[0.75].threshold == 0.99
    assert thresholds[0.6].threshold == 0.8
    assert thresholds[0.6].precision == pytest.approx((45 + 153) / 300)


def test_a_bound_is_clopper_and_pearsons() -> None:
    """The smallest share of which 18 or more of 20 right ones have a probability of a tenth."""
    share, rng = lower_bound(18, 20, 0.9), np.random.default_rng(8)
    assert np.mean(rng.binomial(20, share, 200_000) >= 18) == pytest.approx(0.1, abs=0.003)


def test_what_cannot_be_calibrated_is_refused() -> None:
    """Too few questions, questions of one kind, and scores that say the opposite."""

    def labelled(*labels: int) -> Question:
        rows = (LabelledCandidate(candidate=Candidate(text=str(label)), label=label) for label in labels)
        return Question(id="", text="a", candidates=tuple(rows))

    with pytest.raises(DataError, match="99 questions are too few"):
        check_questions([labelled(1)] * 99)
    with pytest.raises(DataError, match="all questions have an answer"):
        check_questions([labelled(1)] * 100)
    with pytest.raises(DataError, match="all questions lack an answer"):
        check_questions([labelled(0)] * 100)
    check_questions([labelled(0)] * 99 + [labelled(0, 1)])
    with pytest.raises(DataError, match="not higher for right candidates"):
        check_curves(fitted(questions(200, seed=10, steepness=-2.0)))
