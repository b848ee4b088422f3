from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from tests.calibrations import ROW, calibration, curves

from cerberank_models.calibration import (
    CERTAINLY_WRONG,
    LARGEST_WEIGHT,
    Calibration,
    CalibrationError,
    Probabilities,
    copies_of_first,
    limited_log_odds,
    probabilities,
    threshold_for,
)
from cerberank_models.drop import UNSCORED, order

CURVE = {"score": 0.5, "rival": 0.1, "constant": 0.0}
scored = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 1)), min_size=1, max_size=12)
curve = st.fixed_dictionaries(
    {
        "score": st.floats(1e-300, LARGEST_WEIGHT),
        "rival": st.floats(0.0, LARGEST_WEIGHT),
        "constant": st.floats(-LARGEST_WEIGHT, LARGEST_WEIGHT),
    }
)
stage_curves = st.fixed_dictionaries({"answerable": curve, "candidate": curve})
fitted = st.builds(lambda *stages: calibration(stages=stages), stage_curves, stage_curves)


def arrays(rows: list[tuple[float, int]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return np.array([score for score, _ in rows]), np.array([stage for _, stage in rows], dtype=np.int64)


def at_last(one: Calibration, *raw: float) -> Probabilities:
    """The probabilities of candidates that all reached the last stage."""
    return probabilities(one.stages, np.array(raw), np.ones(len(raw), dtype=np.int64))


@given(fitted, scored)
def test_no_score_is_above_answerable_or_changes_the_order_within_a_stage(
    one: Calibration, rows: list[tuple[float, int]]
) -> None:
    """With any weights that can be read, the heaviest ones included, and among any candidates."""
    raw, stages = arrays(rows)
    got = probabilities(one.stages, raw, stages)
    assert got.answerable is not None
    assert 0.0 <= got.answerable <= 1.0
    assert ((got.scores >= 0.0) & (got.scores <= got.answerable)).all()
    for stage in (0, 1):
        inside = [index for index in order(stages, raw).tolist() if stages[index] == stage]
        assert (np.diff(got.scores[inside]) <= 0.0).all()


@given(fitted, scored, st.lists(st.floats(0.0, CERTAINLY_WRONG), min_size=1, max_size=3), st.floats(0.01, 0.99))
def test_candidates_that_are_certainly_wrong_change_nothing(
    one: Calibration, rows: list[tuple[float, int]], wrong: list[float], unanswered: float
) -> None:
    """With any weights, for any share of questions without an answer, and also beside candidates dropped earlier."""
    one, (raw, stages) = one.with_unanswered(unanswered), arrays(rows)
    before = probabilities(one.stages, raw, stages)
    after = probabilities(one.stages, np.append(raw, wrong), np.append(stages, len(wrong) * [stages.max()]))
    assert after.answerable == pytest.approx(before.answerable, abs=CERTAINLY_WRONG)
    assert after.scores[: len(raw)] == pytest.approx(before.scores, abs=CERTAINLY_WRONG)
    only = at_last(one, *wrong).answerable
    assert only is not None
    assert only <= CERTAINLY_WRONG


@given(fitted, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_answerable_rises_with_the_best_raw_score(one: Calibration, low: float, high: float) -> None:
    low, high = sorted((low, high))
    below, above = at_last(one, low).answerable, at_last(one, high).answerable
    assert below is not None
    assert above is not None
    assert below <= above + 1e-12


def test_a_score_is_a_share_of_answerable_that_a_near_rival_lowers() -> None:
    """Values computed by hand: both probabilities depend on the rival, whose raw score counts from .01 to .5."""
    one, odds = calibration(), np.log(9.0)

    def sigmoid(logit: float) -> float:
        return float(1.0 / (1.0 + np.exp(-logit)))

    for others, rival in (([0.8], 0.5), ([0.3], 0.3), ([0.02, 0.01], 0.02), ([], 0.01)):
        got, rival_odds = at_last(one, 0.9, *others), np.log(rival / (1.0 - rival))
        assert got.answerable == pytest.approx(sigmoid(0.6 * odds - 0.1 * rival_odds - 0.5))
        share = sigmoid(1.5 * odds - 0.3 * rival_odds - 0.4)
        assert got.scores[0] == pytest.approx(got.answerable * share)


def test_another_share_of_unanswered_questions_moves_the_log_odds_of_answerable() -> None:
    """Bayes: the odds of an answer are multiplied by nine where a tenth lacks one, and the share of a score stays."""
    half = calibration()
    few, back = half.with_unanswered(0.1), half.with_unanswered(0.1).with_unanswered(0.5)
    before, after = at_last(half, 0.7, 0.4), at_last(few, 0.7, 0.4)
    assert before.answerable is not None
    assert after.answerable is not None
    assert after.answerable / (1.0 - after.answerable) == pytest.approx(
        9.0 * before.answerable / (1.0 - before.answerable)
    )
    assert after.scores / after.answerable == pytest.approx(before.scores / before.answerable)
    assert (few.mean_answerable, few.precision) == (pytest.approx(0.9), half.precision)
    assert at_last(back, 0.7).answerable == pytest.approx(at_last(half, 0.7).answerable)
    for wrong in (0.0, 1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            half.with_unanswered(wrong)


def test_a_candidate_without_a_score_has_no_probability_and_is_nobodys_rival() -> None:
    """A deadline passed; with no score at all there is no answer to whether anything answers."""
    one = calibration()
    got = probabilities(one.stages, np.array([0.9, np.nan]), np.array([1, UNSCORED]))
    assert got.scores[0] == at_last(one, 0.9).scores[0]
    assert np.isnan(got.scores[1])
    none = probabilities(one.stages, np.array([np.nan]), np.array([UNSCORED]))
    assert np.isnan(none.scores).all()
    assert none.answerable is None


def test_the_stage_of_the_first_result_tells_if_anything_answers() -> None:
    """The best candidate of the last stage, with a dropped one as its rival; after a deadline that of an exit."""
    exit_, last = curves(2)
    one = calibration(stages=[exit_ | {"answerable": {"score": 0.6, "rival": 0.0, "constant": 1.0}}, last])
    dropped = probabilities(one.stages, np.array([0.3, 0.3]), np.array([1, 0]))
    assert dropped.answerable == at_last(one, 0.3, 0.3).answerable
    ended = probabilities(one.stages, np.array([0.9, 0.2]), np.array([0, 0]))
    assert ended.answerable == pytest.approx(1.0 / (1.0 + np.exp(-(0.6 * np.log(9.0) + 1.0))))


def test_copies_of_the_first_result_are_not_its_rivals() -> None:
    """A text that comes again, written in another way, has the probability that it has alone."""
    one, last = calibration(), np.array([1, 1, 1])

    def ranked(raw: list[float], texts: list[str]) -> list[float]:
        scores, stages = np.array(raw), last[: len(raw)]
        copies = copies_of_first(limited_log_odds(scores), stages, texts)
        return probabilities(one.stages, scores, stages, copies).scores.tolist()

    twice = ranked([0.9, 0.2, 0.89], ["The Rhine.", "Bonn", "the  rhine. "])
    once = ranked([0.9, 0.2], ["The Rhine.", "Bonn"])
    assert twice[:2] == once
    assert twice[2] == pytest.approx(once[0], abs=0.05)
    assert ranked([0.9, 0.9], ["a", "A"]) == ranked([0.9], ["a"]) * 2
    # A copy behind another text keeps its place in the order.
    first, copy, between = ranked([0.9, 0.85, 0.88], ["a", "A", "b"])
    assert first > between > copy


def test_a_precision_between_two_rows_gets_the_higher_ones_threshold() -> None:
    """Never less than what was wanted; beyond the highest there is none."""
    one = calibration()
    assert [threshold_for(one, wanted) for wanted in (0.1, 0.7, 0.71, 0.9)] == [0.4, 0.4, 0.8, 0.8]
    with pytest.raises(CalibrationError, match=r"precision of 0\.95: the highest is 0\.9"):
        threshold_for(one, 0.95)
    with pytest.raises(CalibrationError, match="none is reached"):
        threshold_for(calibration(precision=[]), 0.5)
    for wrong in (-1.0, 0.0, 1.0):
        with pytest.raises(CalibrationError, match="between 0 and 1"):
            threshold_for(one, wrong)
    with pytest.raises(CalibrationError, match="not calibrated"):
        threshold_for(None, 0.5)


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"stages": [{"answerable": CURVE | change, "candidate": CURVE}]}
            for change in ({"score": 0.0}, {"score": -0.5}, {"rival": -0.1}, {"constant": 1e308})
        ),
        {"unanswered": 1.0},
        {"precision": [ROW | {"wanted": 0.9, "threshold": 0.8}, ROW | {"wanted": 0.7, "threshold": 0.4}]},
        {"format": 1},
        {"format": 3},
        {"data": calibration().data.model_dump() | {"removed": 151}},
    ],
)
def test_what_would_change_the_order_or_cannot_be_read_is_refused(changes: dict[str, Any]) -> None:
    """A curve that falls, weights that are too large, unsorted rows, and other formats."""
    with pytest.raises(ValidationError):
        calibration(**changes)
