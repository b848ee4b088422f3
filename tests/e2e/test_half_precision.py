from __future__ import annotations

from pathlib import Path

from tests.training.letters import questions
from tools.half_precision import compare

from cerberank_models.rank import HALF_TOLERANCE


def test_half_precisions_are_compared_with_fp32_through_the_real_service(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Three processes answer; no score of the random checkpoint moves by more than the golden check allows."""
    # Two threads would wait for each other in networks of a few weights, for ten seconds a service.
    fp16, bf16 = compare(tiny_checkpoint, questions(), tmp_path, DEVICE="cpu", THREADS="1")
    assert (fp16.precision, bf16.precision) == ("fp16", "bf16")
    assert fp16.questions == bf16.questions == 5
    assert 0 < fp16.difference <= HALF_TOLERANCE["fp16"]
    assert 0 < bf16.difference <= HALF_TOLERANCE["bf16"]
    assert fp16.difference < bf16.difference
    assert 0 <= bf16.agreement <= 100
