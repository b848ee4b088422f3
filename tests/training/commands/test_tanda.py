"""The folders of TANDA's authors, whose config.json names no class, as bases and teachers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tests.program import program
from tests.tanda import TOKENIZERS, Twin
from tests.training.letters import dev_jsonl, jsonl, questions

from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_training.learning.settings import StudentShape
from cerberank_training.learning.student_network import build_student, fitted
from cerberank_training.runs.base import open_base
from cerberank_training.teachers.scoring.open import open_teacher
from cerberank_training.teachers.scoring.teacher import TeacherSpec


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_the_folder_is_a_base_with_its_classifier_and_a_teacher(family: str, tmp_path: Path) -> None:
    """Every head starts with the trained classifier, and the line of the start says so."""
    authors = Twin(family)
    base = open_base(str(authors.save(tmp_path / "ckpt")))
    student = build_student(fitted(base, StudentShape(heads=2)), base, seed=1, dropout=0.0)
    assert student.start.endswith("a cross-encoder of two logits, whose classifier the heads start from")
    output = authors.model.classifier if family == "bert" else authors.model.classifier.out_proj
    for head in student.ranker.heads:
        assert torch.equal(head.classifier.output.weight, output.weight)

    question, tokenizer = questions()[0], TOKENIZERS[family].from_pretrained(base.place)
    candidates = [each.candidate for each in question.candidates]
    teacher = open_teacher(TeacherSpec(source=base.place, input=TeacherInput.read(base.place)))
    scores = 1 / (1 + np.exp(-teacher.differences([(question.text, candidate) for candidate in candidates])))
    wanted = authors.scores(tokenizer, question.text, [candidate.text for candidate in candidates])
    assert np.abs(scores - wanted).max() < 1e-5


def test_teach_goes_on_with_the_trained_classifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And what it writes states its family and its class."""
    authors = Twin("roberta")
    data = ["--train", jsonl(tmp_path), "--dev", dev_jsonl(tmp_path), "--steps", "1", "--learning-rate", "1e-9"]
    base, out = authors.save(tmp_path / "ckpt"), tmp_path / "out"
    assert program("train teach")(["--base", str(base), "--out", str(out), "--device", "cpu", *data]) == 0
    assert f"starts from {base}, a cross-encoder of two logits; the first step" in capsys.readouterr().err
    taught = transformers.AutoModelForSequenceClassification.from_pretrained(out)
    assert taught.config.architectures == ["RobertaForSequenceClassification"]
    assert (taught.classifier.dense.weight - authors.model.classifier.dense.weight).abs().max() < 1e-6
