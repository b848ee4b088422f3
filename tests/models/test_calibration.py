from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.calibrations import ROW, calibration

from cerberank_models.calibration import HEAVIEST, CalibrationError, probabilities, threshold_for
from cerberank_models.drop import UNSCORED, order

scored = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 1)), min_size=1, max_size=12)


@given(scored)
def test_probabilities_keep_the_order_within_a_stage(rows: list[tuple[float, int]]) -> None:
    """Whatever rivals there are: the ranking of raw scores is one of calibrated scores, too."""
    raw, stages = np.array([score for score, _ in rows]), np.array([stage for _, stage in rows])
    got = calibration().scores(raw, stages)
    assert ((got >= 0) & (got <= 1)).all()
    for stage in (0, 1):
        inside = [index for index in order(stages, raw).tolist() if stages[index] == stage]
        assert (np.diff(got[inside]) <= 1e-12).all()


weights = st.floats(-HEAVIEST, HEAVIEST)


@given(scored, st.tuples(*6 * [weights]), st.floats(1e-300, HEAVIEST), st.floats(0.0, HEAVIEST), weights)
def test_every_calibration_that_is_read_gives_probabilities(
    rows: list[tuple[float, int]], answerable: tuple[float, ...], score: float, lead: float, constant: float
) -> None:
    """Also with the heaviest weights, no score is NaN or infinite."""
    one = calibration(curves=2 * [{"score": score, "lead": lead, "constant": constant}], answerable=answerable)
    raw, stages = np.array([score for score, _ in rows]), np.array([stage for _, stage in rows])
    got = [*one.scores(raw, stages), one.any_answers(raw, stages) or 0.0]
    assert all(0.0 <= probability <= 1.0 for probability in got)


def test_a_high_score_is_worth_less_beside_another_one() -> None:
    """The same raw score with a distant rival, with a near one, and without any."""
    one, last = calibration(), np.array([1, 1])
    far, near = (one.scores(np.array([0.9, rival]), last)[0] for rival in (0.1, 0.85))
    assert near < far
    odds = np.log(9.0)
    expected = 1.0 / (1.0 + np.exp(-(0.8 * odds + 0.6 * 4.0 - 0.4)))
    assert one.scores(np.array([0.9]), np.array([1])) == pytest.approx([expected])


def test_a_candidate_without_a_score_has_no_probability_and_is_nobodys_rival() -> None:
    """A deadline passed; with no score at all there is no answer to whether anything answers."""
    one, stages = calibration(), np.array([1, UNSCORED])
    got = one.scores(np.array([0.9, np.nan]), stages)
    assert got[0] == one.scores(np.array([0.9]), np.array([1]))[0]
    assert np.isnan(got[1])
    assert one.any_answers(np.array([np.nan]), np.array([UNSCORED])) is None


def test_copies_of_the_first_result_are_not_its_rivals() -> None:
    """A text that comes again, written in another way, has the probability that it has alone."""
    one = calibration()
    twice = probabilities(one, np.array([0.9, 0.2, 0.89]), np.array([1, 1, 1]), ["The Rhine.", "Bonn", "the  rhine. "])
    once = probabilities(one, np.array([0.9, 0.2]), np.array([1, 1]), ["The Rhine.", "Bonn"])
    assert twice.scores[:2].tolist() == once.scores.tolist()
    assert twice.scores[2] == pytest.approx(once.scores[0], abs=0.05)
    assert twice.answerable == once.answerable
    alone = probabilities(one, np.array([0.9, 0.9]), np.array([1, 1]), ["a", "A"])
    assert alone.scores.tolist() == [one.scores(np.array([0.9]), np.array([1]))[0]] * 2


def test_only_the_last_stage_tells_whether_anything_answers() -> None:
    """Scores of dropped candidates are another stage's; after a deadline in front of the last one nothing is told."""
    one = calibration()
    dropped = one.any_answers(np.array([0.3, 0.99]), np.array([1, 0]))
    assert dropped == one.any_answers(np.array([0.3]), np.array([1]))
    assert one.any_answers(np.array([0.9, 0.2]), np.array([0, 0])) is None


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
        {"curves": [{"score": -0.5, "lead": 0.0, "constant": 0.0}]},
        {"curves": [{"score": 0.5, "lead": -0.1, "constant": 0.0}]},
        {"answerable": [1.0, 0.0]},
        {"precision": [ROW | {"wanted": 0.9, "threshold": 0.8}, ROW | {"wanted": 0.7, "threshold": 0.4}]},
        {"format": 2},
        {"curves": [{"score": 1e308, "lead": 1e308, "constant": 0.0}]},
        {"alone": -1e308},
        {"answerable": [1e308, -1e308, 0.0, 0.0, 0.0, 0.0]},
    ],
)
def test_what_would_change_the_order_or_cannot_be_read_is_refused(changes: dict[str, Any]) -> None:
    """A curve that falls, weights for another number of scores or too large, unsorted rows, a later format."""
    with pytest.raises(ValidationError):
        calibration(**changes)
