from __future__ import annotations

from pathlib import Path

import pytest
from tests.training.letters import questions
from tools import half_precision

from cerberank_models.rank import HALF_TOLERANCE


def test_half_precisions_are_compared_with_fp32_through_the_real_service(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes answer; no score of the random checkpoint moves by more than the golden check allows.

    `tests/service/test_half_precision.py` has both half precisions.
    """
    monkeypatch.setattr(half_precision, "HALVES", ("bf16",))
    # Two threads would wait for each other in networks of a few weights, for ten seconds a service.
    (bf16,) = half_precision.compare(tiny_checkpoint, questions(), tmp_path, DEVICE="cpu", THREADS="1")
    assert (bf16.precision, bf16.questions) == ("bf16", 5)
    assert 0 < bf16.difference <= HALF_TOLERANCE["bf16"]
    assert 0 <= bf16.agreement <= 100
