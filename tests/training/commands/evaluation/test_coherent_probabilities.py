"""The probabilities of the bundled checkpoint: what its calibration promises beyond the rules of any."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cerberank_models.calibration import Calibration, Probabilities, probabilities
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.ranker import Ranker


def at_last(calibration: Calibration, raw: list[float]) -> Probabilities:
    return probabilities(calibration.stages, np.array(raw), np.full(len(raw), len(calibration.stages) - 1))


def test_several_right_candidates_keep_high_scores() -> None:
    """The bundled model, whose first results have raw scores near .99 where they are right."""
    calibration = read_checkpoint(BUNDLED).calibration
    assert calibration is not None
    alone, three = (at_last(calibration, [0.99] * count) for count in (1, 3))
    assert alone.scores[0] > 0.85
    assert three.scores.min() > 0.6


def test_the_thresholds_of_the_bundled_model_are_a_dial() -> None:
    """Each wanted precision has a threshold of its own, a bound, and less recall than the one before."""
    calibration = read_checkpoint(BUNDLED).calibration
    assert calibration.data.questions >= 3000
    rows = calibration.precision
    assert [row.wanted for row in rows] == [round(0.5 + 0.05 * step, 2) for step in range(len(rows))]
    assert rows[-1].wanted >= 0.9
    for low, high in pairwise(rows):
        assert low.threshold < high.threshold
        assert low.recall > high.recall
    assert all(row.wanted <= row.bound <= row.precision < row.precision_answered for row in rows)


@pytest.mark.parametrize(
    ("question", "text"),
    [("How tall?", "It is 3 m."), ("When was the company founded?", "Founded in Berlin.")],
)
def test_an_unrelated_text_makes_no_near_miss_an_answer(question: str, text: str) -> None:
    """With the leads of earlier calibrations they had .78 and .63 beside this text."""
    ranker = Ranker.load(BUNDLED)
    alone, beside = ranker.rank(question, [text]), ranker.rank(question, [text, "Bees make honey."])
    assert beside[0].text == text
    assert beside[0].score == pytest.approx(alone[0].score, abs=0.02)
    assert beside.answerable == pytest.approx(alone.answerable, abs=0.02)
    assert not ranker.rank(question, [text, "Bees make honey."], min_precision=0.85).results
