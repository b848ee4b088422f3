from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tests.program import program
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.encoding import Candidate
from cerberank_training.teachers.scoring.hugging_face import HuggingFaceTeacher, teacher_origin
from cerberank_training.teachers.scoring.open import cut_line, open_teacher, teacher_identity
from cerberank_training.teachers.scoring.teacher import TeacherSpec
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache

PAIRS = [
    ("how tall is the tower ?", Candidate(text="330 metres", previous="it was built .", next="in paris")),
    ("how tall is the tower ?", Candidate(text="it was built in paris . " * 8)),
    ("what do bees make ?", Candidate(text="")),
    ("what do bees make ?", Candidate(text="honey \ud800", next="from the river")),
]
SHORT = TeacherInput(max_length=64)
"""The input of a tiny network, which has 64 positions."""


def reference(folder: Path, question: str, answer: str, max_length: int) -> float:
    """One pair alone, unpadded, as a user of transformers would score it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    # As lists: given a lone empty answer, transformers would leave its segment out.
    inputs = tokenizer([question], [answer], truncation="longest_first", max_length=max_length, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits[0]
    return float(logits[0] if len(logits) == 1 else logits[1] - logits[0])


@pytest.mark.parametrize(("family", "labels"), [("bert", 1), ("electra", 2), ("roberta", 2)])
@pytest.mark.parametrize("batch_tokens", [1, 10_000])
def test_a_teachers_scores_are_its_own(family: str, labels: int, batch_tokens: int, tmp_path: Path) -> None:
    """One logit or the difference of two, in batches of one or of all, cut to the length that was asked for."""
    folder = save_cross_encoder(family, tmp_path / family, num_labels=labels)
    spec = TeacherSpec(source=str(folder), input=TeacherInput(max_length=32), batch_tokens=batch_tokens)
    got = open_teacher(spec).differences(PAIRS)
    expected = [
        reference(folder, question, candidate.text.replace("\ud800", "\ufffd"), 32) for question, candidate in PAIRS
    ]
    assert np.abs(got - expected).max() <= 1e-4
    assert np.ptp(got) > 0.01
    assert got.dtype == np.float32


def test_a_teacher_with_context_reads_it_behind_a_separator(tmp_path: Path) -> None:
    """`[CLS] q [SEP] s [SEP] c [SEP]`; a missing neighbour leaves no blank."""
    folder = save_cross_encoder("bert", tmp_path / "bert")
    got = open_teacher(TeacherSpec(source=str(folder), input=TeacherInput(max_length=48, context=True))).differences(
        PAIRS[:1]
    )
    answer = "330 metres [SEP] it was built . in paris"
    assert abs(got[0] - reference(folder, PAIRS[0][0], answer, 48)) <= 1e-4
    alone = open_teacher(TeacherSpec(source=str(folder), input=TeacherInput(max_length=48))).differences(PAIRS[:1])
    assert abs(got[0] - alone[0]) > 1e-3


def test_bf16_is_near_fp32(tmp_path: Path) -> None:
    """Another precision, nearly the same scores, another identity."""
    folder = save_cross_encoder("bert", tmp_path / "bert")
    full, half = (
        TeacherSpec(source=str(folder), input=TeacherInput(max_length=32), precision=name) for name in ("fp32", "bf16")
    )
    difference = np.abs(open_teacher(full).differences(PAIRS) - open_teacher(half).differences(PAIRS)).max()
    assert 0 < difference < 0.3
    assert teacher_identity(full) != teacher_identity(half)


def test_the_revision_is_the_files_and_nothing_else(tmp_path: Path) -> None:
    """A copy with a further log has the same revision; one changed weight changes it."""
    folder = save_cross_encoder("bert", tmp_path / "bert")
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "trainer_state.json").write_text("{}")
    revision = teacher_identity(TeacherSpec(source=str(folder), input=SHORT)).revision
    assert teacher_identity(TeacherSpec(source=str(copy), input=SHORT)).revision == revision
    other = save_cross_encoder("bert", tmp_path / "other", seed=1)
    assert teacher_identity(TeacherSpec(source=str(other), input=SHORT)).revision != revision


def test_three_labels_are_refused(tmp_path: Path) -> None:
    """A model with three labels is refused, because it has no single logit difference."""
    folder = save_cross_encoder("bert", tmp_path / "bert", num_labels=3)
    with pytest.raises(ValueError, match="3 labels"):
        HuggingFaceTeacher(TeacherSpec(source=str(folder)))


def test_weights_without_safetensors_score_alike_and_run_no_code(tmp_path: Path) -> None:
    """`pytorch_model.bin`, as TANDA's released teachers have it; one that holds more than tensors is refused."""
    folder = save_cross_encoder("bert", tmp_path / "bert")
    spec, pairs = TeacherSpec(source=str(folder), input=SHORT), PAIRS[:1]
    expected = HuggingFaceTeacher(spec).differences(pairs)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert HuggingFaceTeacher(spec).differences(pairs).tolist() == expected.tolist()
    revision = teacher_identity(spec).revision
    torch.save({**weights, "more": Path("code")}, folder / "pytorch_model.bin")
    assert teacher_identity(spec).revision != revision
    with pytest.raises(UnsupportedModelError, match="its weights cannot be read"):
        HuggingFaceTeacher(spec)


def test_a_teacher_with_too_few_positions_is_refused(tmp_path: Path) -> None:
    """Before the first text is read, because a late one may be the first that is too long."""
    folder = save_cross_encoder("bert", tmp_path / "bert")
    with pytest.raises(UnsupportedModelError, match=r"^--max-length 65: .* has 64 positions$"):
        teacher_identity(TeacherSpec(source=str(folder), input=TeacherInput(max_length=65)))


def test_pairs_that_do_not_fit_are_told(tmp_path: Path, tiny_checkpoint: Path) -> None:
    """Pairs of the first questions are counted for both kinds of teachers; without a pair there is nothing to tell."""
    texts = [
        ("how tall is the tower ?", [Candidate(text="330 metres"), Candidate(text="it was built in paris . " * 9)])
    ]
    folder = save_cross_encoder("bert", tmp_path / "bert")
    told = "of the first 2 pairs 1 do not fit into 48 tokens, and are scored as far as they fit"
    for source in (folder, tiny_checkpoint):
        spec = TeacherSpec(source=str(source), input=TeacherInput(max_length=48))
        assert cut_line(spec, lambda: texts, tokens=48) == told
        assert cut_line(spec, lambda: [(text, rows[:1]) for text, rows in texts], tokens=48) == ""
        assert cut_line(spec, lambda: [], tokens=48) == ""


def test_a_teacher_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    """Without one, transformers makes an empty vocabulary, with which all texts of a length are the same."""
    save_cross_encoder("bert", tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    with pytest.raises(ValueError, match="has no tokenizer"):
        HuggingFaceTeacher(TeacherSpec(source=str(tmp_path)))


def test_a_teachers_own_figure_is_told_while_its_folder_is_the_one_that_scored(tmp_path: Path) -> None:
    """With the set that it is of; not for a teacher of 0.1.0, nor for one that has changed since, nor for one that is
    gone.
    """
    save_cross_encoder("bert", tmp_path / "base")
    data, folder, made = jsonl(tmp_path), tmp_path / "teacher", tmp_path / "made"
    arguments = ["--base", str(tmp_path / "base"), "--train", data, "--dev", dev_jsonl(tmp_path), "--out", str(folder)]
    common = ["--device", "cpu", "--precision", "fp32", "--max-length", "32", "--examples-per-step", "2"]
    assert program("train teach")([*arguments, *common, "--steps", "2"]) == 0
    assert program("data score")([str(made), "--teacher", str(folder), "--data", data]) == 0
    teacher = TeacherScoreCache.open(made).teacher
    told = teacher_origin(teacher)
    assert (told["name"], told["dev"], told["questions"]) == ("teacher", "jsonl:dev.jsonl", 5)
    assert 0 < told["dev_map"] <= 100
    record = (folder / "record.json").read_text()
    (folder / "record.json").write_text(record.replace('"result":', '"unknown":'))
    assert teacher_origin(teacher) == {"name": "teacher", "revision": teacher.revision}
    (folder / "record.json").write_text(record)
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert teacher_origin(teacher) == {"name": "teacher", "revision": teacher.revision}
