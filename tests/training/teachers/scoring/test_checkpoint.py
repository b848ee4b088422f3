from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.bounds import PROBABILITIES

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import CheckpointError, read_checkpoint
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import rank_pairs
from cerberank_training.teachers.scoring.open import open_teacher, teacher_identity
from cerberank_training.teachers.scoring.teacher import TeacherSpec

PAIRS = [
    ("how tall ?", Candidate(text="330 metres")),
    ("how tall ?", Candidate(text="bees make honey")),
    ("who wrote it ?", Candidate(text="the opera")),
]


@pytest.mark.parametrize(("backend", "precision"), [("torch", "fp32"), ("onnx", "fp32"), ("onnx", "int8")])
@pytest.mark.parametrize("batch_tokens", [1, 10_000])
def test_a_checkpoints_scores_are_the_logits_of_its_ranking(
    tiny_checkpoint: Path, backend: str, precision: str, batch_tokens: int
) -> None:
    """Against `rank_pairs` without dropping, question by question, whatever the batches are."""
    spec = TeacherSpec(
        source=str(tiny_checkpoint),
        backend=backend,  # type: ignore[arg-type]
        precision=precision,
        batch_tokens=batch_tokens,
    )
    got = open_teacher(spec).differences(PAIRS)
    checkpoint = read_checkpoint(tiny_checkpoint)
    ranker = open_backend(checkpoint, kind=backend, precision=precision)  # type: ignore[arg-type]
    for question in {question for question, _ in PAIRS}:
        rows = [row for row, pair in enumerate(PAIRS) if pair[0] == question]
        pairs = checkpoint.encoder().encode(question, [PAIRS[row][1] for row in rows])
        expected = rank_pairs(ranker, pairs, RatioSchedule((0.0, 0.0))).scores
        # Dynamic int8 takes a scale a batch, so its scores move a little with the batch.
        assert np.abs(1 / (1 + np.exp(-got[rows].astype(float))) - expected).max() <= (
            0.05 if precision == "int8" else PROBABILITIES
        )


def test_an_identity_tells_what_runs_it(tiny_checkpoint: Path) -> None:
    """The identity has backend and precision, max_length and context, so that int8 and fp32 scores never mix."""
    torch = teacher_identity(TeacherSpec(source=str(tiny_checkpoint), input=TeacherInput(max_length=7, context=True)))
    onnx = teacher_identity(TeacherSpec(source=str(tiny_checkpoint), backend="onnx", precision="int8"))
    assert (torch.name, torch.max_length, torch.context) == ("random-tiny 1", 48, False)
    assert (torch.precision, onnx.precision) == ("torch/fp32", "onnx/int8")
    assert torch.revision == onnx.revision


def test_a_precision_that_is_not_there_is_named(tiny_checkpoint: Path) -> None:
    """The error names the missing precision; no other precision is used instead."""
    with pytest.raises(CheckpointError, match="it has: fp32, int8"):
        open_teacher(TeacherSpec(source=str(tiny_checkpoint), backend="onnx", precision="fp16"))
