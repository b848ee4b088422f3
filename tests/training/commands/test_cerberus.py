"""The checkpoint of CERBERUS's authors as ranker, base and teacher, in int8, and back in their format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.authors_cerberus import save, twin
from tests.program import program
from tests.tiny import bert_tokenizer, random_checkpoint, save_tokenizer
from tests.training.letters import jsonl, questions
from transformers import AutoTokenizer

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.ranker import Ranker
from cerberank_training.learning.settings import StudentShape
from cerberank_training.learning.student_network import build_student, fitted
from cerberank_training.runs.base import open_base
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache

AUTHORS = twin()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The authors' folder, with a tokenizer beside the weights."""
    path = save(AUTHORS.state(), tmp_path / "authors")
    save_tokenizer(bert_tokenizer(), path)
    return path


def golden_jsonl(folder: Path, tokenizer: Any) -> str:
    """The golden questions as data, whose right candidate is the one that the network ranks first."""
    lines = []
    for question, texts in GOLDEN_TEXTS:
        first = AUTHORS.scores(tokenizer, question, texts).argmax()
        candidates = [{"text": text, "label": int(row == first)} for row, text in enumerate(texts)]
        lines.append(json.dumps({"question": question, "candidates": candidates}))
    (folder / "golden.jsonl").write_text("\n".join(lines))
    return f"jsonl:{folder / 'golden.jsonl'}"


@pytest.mark.usefixtures("imports_here")
@torch.inference_mode()
def test_the_folder_is_a_ranker_a_base_and_a_teacher(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own path, as a Hugging Face model is; a student starts from all heads."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tokenizer, question = AutoTokenizer.from_pretrained(folder), questions()[0]
    candidates = [each.candidate for each in question.candidates]
    wanted = AUTHORS.scores(tokenizer, question.text, [each.text for each in candidates])
    ranked = Ranker.load(folder).rank(question.text, [each.text for each in candidates], drop_ratio=0.0)
    got = {each.index: each.score for each in ranked}
    assert np.abs(np.asarray([got[row] for row in range(len(wanted))]) - wanted).max() < 1e-5

    base = open_base(str(folder))
    student = build_student(fitted(base, StudentShape(heads=3)), base, seed=1, dropout=0.0)
    assert str(student.ranker.config.architecture) == "B2 3H1"
    state = AUTHORS.state()
    for number, head in enumerate(student.ranker.heads):
        assert torch.equal(head.classifier.output.weight, state[f"cerberus_heads.{number}.classifier.out_proj.weight"])

    call = ["--data", jsonl(tmp_path), "--teacher", str(folder), "--device", "cpu"]
    assert program("data score")([str(tmp_path / "scores"), *call]) == 0
    cache = TeacherScoreCache.open(tmp_path / "scores")
    scores = cache.scores(question.text, candidates)
    assert np.abs(1 / (1 + np.exp(-scores)) - wanted).max() < 1e-5


@torch.inference_mode()
def test_the_checkpoint_is_exported_to_int8_and_back_to_the_authors_format(folder: Path, tmp_path: Path) -> None:
    """int8 passes the gate, and every tensor of the file comes back with its name and its bits."""
    imported = str(tmp_path / "imported")
    assert program("import")([str(folder), imported, "--forms", "none"]) == 0
    gate = ["--forms", "int8", "--gate", golden_jsonl(tmp_path, AutoTokenizer.from_pretrained(folder))]
    assert program("export")([imported, str(tmp_path / "int8"), *gate]) == 0
    assert read_checkpoint(tmp_path / "int8").precisions == ("int8",)

    assert program("export")([imported, str(tmp_path / "back"), "--cerberus"]) == 0
    before, after = (torch.load(each / "cerberus_model.pt") for each in (folder, tmp_path / "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert program("import")([str(tmp_path / "back"), str(tmp_path / "again"), "--forms", "none"]) == 0
    one, other = (load_ranker(read_checkpoint(tmp_path / name)).state_dict() for name in ("imported", "again"))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"exits": ()}, "has layers of bert, and the authors' CERBERUS is ELECTRA's layers with heads alone"),
        ({"family": "electra"}, "has exits, and"),
        ({"family": "electra", "exits": (3,), "heads": 0, "num_hidden_layers": 3}, "a score that is an exit's, and"),
        ({"family": "electra", "exits": ()}, "32 is not the width of an ELECTRA"),
        ({"family": "electra", "exits": (), "hidden_size": 128}, "has no place for attention_heads = 4"),
    ],
)
def test_a_network_of_another_shape_is_not_exported(
    shape: dict[str, object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what the authors' network lacks."""
    random_checkpoint(tmp_path / "checkpoint", precisions=(), **shape)
    assert program("export")([str(tmp_path / "checkpoint"), str(tmp_path / "out"), "--cerberus"]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
