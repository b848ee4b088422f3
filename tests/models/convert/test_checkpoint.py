from __future__ import annotations

import numpy as np
import pytest

from cerberank_models.backends.stage_contract import probability
from cerberank_models.convert.checkpoint import PARITY, ParityError, check_differing, check_parity
from cerberank_models.convert.families import UnsupportedModelError

LOGITS = np.array([-16.0, -15.0, -14.0, -13.0, -12.0])


@pytest.mark.parametrize(("precision", "near"), [("fp32", 1e-4), ("fp16", 0.05), ("int8", 0.5)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_scores_near_0_or_1_are_compared_by_log_odds(precision: str, near: float, sign: float) -> None:
    """Another network's scores differ by less than 1e-5 and are refused; what rounding moves is not."""
    expected = [probability(sign * LOGITS)]
    other = [probability(sign * LOGITS[::-1])]
    assert np.abs(expected[0] - other[0]).max() < PARITY["fp32"]
    check_parity(precision, expected, [probability(sign * LOGITS + near)], PARITY[precision])
    with pytest.raises(ParityError, match=f"{precision} scores differ from PyTorch's by 4 in log-odds"):
        check_parity(precision, expected, other, PARITY[precision])


def test_scores_beyond_float64_are_equal() -> None:
    """0 and 1 have no finite log-odds: no warning, and no difference."""
    check_parity("fp32", [np.array([0.0, 1.0])], [np.array([1e-15, 1.0 - 1e-15])], PARITY["fp32"])


def test_low_scores_are_no_sign_of_an_untrained_model() -> None:
    """Log-odds that differ are scores that differ; equal ones are refused, with the score."""
    check_differing("m", [probability(LOGITS - 4.0)])
    with pytest.raises(
        UnsupportedModelError, match=r"m gives every pair the same score, 1\.523e-08: it is not trained"
    ):
        check_differing("m", [probability(np.array([-18.0])), probability(np.array([-18.0]))])
