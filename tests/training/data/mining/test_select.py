"""The texts of a search that become negatives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cerberank_training.data.mining.select import Selection

SCORES = [0.9, 0.5, 0.95, 0.5, -0.2]
POSITIVES = np.asarray([0.97, 0.92])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ([2, 0, 1, 3, 4], 0)),
        ({"negatives": 2}, ([2, 0], 0)),
        ({"relative_margin": 0.0}, ([0, 1, 3, 4], 1)),
        ({"relative_margin": 0.05, "negatives": 1}, ([1], 2)),
    ],
)
def test_negatives_stay_below_the_lowest_positive(settings: dict[str, float], expected: object) -> None:
    """By a share of its score; the highest first, equal ones in the search's order."""
    assert Selection(**settings)(SCORES, POSITIVES, "q") == expected  # type: ignore[arg-type]


def test_a_share_of_a_negative_score_is_below_it_too() -> None:
    """Cosines may be negative: the limit is below the positive, not above."""
    assert Selection(relative_margin=0.5).limit(np.asarray([-0.2])) == pytest.approx(-0.3)
    assert Selection().limit(POSITIVES) == math.inf


def test_a_draw_follows_from_seed_and_question() -> None:
    """The same again, others for another question; all of the passing ones come up."""
    draws = {name: Selection(negatives=2, choose="random")(SCORES, POSITIVES, name)[0] for name in map(str, range(50))}
    assert draws == {name: Selection(negatives=2, choose="random")(SCORES, POSITIVES, name)[0] for name in draws}
    assert {row for drawn in draws.values() for row in drawn} == set(range(5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"negatives": 0}, "--negatives must be"),
        ({"skip": 5, "top": 5}, "--top above --skip"),
        ({"relative_margin": float("nan")}, "--relative-margin is nan"),
        ({"relative_margin": 5}, "--relative-margin is 5; it is from 0 to below 1"),
        ({"relative_margin": -0.1}, "--relative-margin is -0.1"),
    ],
)
def test_settings_that_select_nothing_are_refused(settings: dict[str, float], message: str) -> None:
    """The option is named."""
    with pytest.raises(ValueError, match=message):
        Selection(**settings).check()  # type: ignore[arg-type]
