"""`cerberank train teach`: SSP's settings reach the run, and what cannot be meant is refused."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from tests.program import program, replaced
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl
from transformers import AutoConfig, AutoModel

from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_training.runs.record import read_record

main = program("train teach")


def call(folder: Path, *changes: object) -> int:
    words = ["--base", folder / "base", "--train", jsonl(folder), "--out", folder / "out"]
    words += ["--dev", dev_jsonl(folder)]
    common = ["--device", "cpu", "--precision", "fp32", "--max-length", 32, "--examples-per-step", 2]
    return main(replaced((*words, *common), *changes))


def reached(folder: Path) -> int:
    record = read_record(folder / "out")
    return record.results["reached"]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end where they would train, with exit code 130."""

    def stop(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("cerberank_training.runs.loop.Loop.train", stop)


def test_the_papers_settings(tmp_path: Path) -> None:
    """Table 3 of SSP: epochs, early stop by dev MAP, no decay, clipping, three token types."""
    save_cross_encoder("bert", tmp_path / "base")
    settings = ["--context", "--token-types", "fresh", "--epochs", "1.6", "--evaluate-every", 1, "--patience", 2]
    settings += ["--weight-decay", 0, "--clip", 1, "--warmup", 0.5, "--dev-questions", "all", "--learning-rate", 1e-9]
    assert call(tmp_path, *settings) == 0
    assert AutoConfig.from_pretrained(tmp_path / "out").type_vocab_size == 3
    assert TeacherInput.read(str(tmp_path / "out")) == TeacherInput(max_length=32, context=True)
    record = read_record(tmp_path / "out")
    assert record.bound["steps"] == 4  # 1.6 epochs of five questions, two a step
    assert record.results["reached"] == 3  # the first evaluation and two without a gain


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--steps", 1, "--epochs", 1], "--steps and --epochs are two lengths"),
        (["--evaluate-every", 2.5], "takes a whole number of steps, or a share below 1, not '2.5'"),
        (["--token-types", "fresh"], "--token-types fresh are for a teacher that reads context"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    changes: list[object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on standard error that names the setting, an exit code, no folder."""
    code, error = call(tmp_path, *changes), capsys.readouterr().err
    assert code == (2 if "See cerberank train teach --help" in error else 1)
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_texts_longer_than_the_bases_positions_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before any data are read, not by the first long text of a run."""
    save_cross_encoder("bert", tmp_path / "base")
    (tmp_path / "broken").write_text("no JSON")
    assert call(tmp_path, "--max-length", 4000, "--train", f"jsonl:{tmp_path / 'broken'}") == 1
    assert f"cerberank train teach: --max-length 4000: {tmp_path / 'base'} has " in capsys.readouterr().err


def test_single_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SSP's epochs are of pairs, questions without a positive kept on demand; no loss compares them."""
    save_cross_encoder("bert", tmp_path / "base")
    pairs = ["--sampling", "pairs", "--unanswered", "keep"]
    assert call(tmp_path, *pairs, "--epochs", "0.4", "--evaluate-every", 5) == 0
    assert reached(tmp_path) == 5  # 0.4 epochs of 25 pairs, two a step
    assert call(tmp_path, *pairs, "--loss", "both") == 2
    assert "--loss both compares" in capsys.readouterr().err


@pytest.mark.usefixtures("begun")
def test_what_it_starts_from_is_said_or_refused(
    tmp_path: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One logit, two, and an encoder; a checkpoint of ours is refused with what it can be, a wrong path by its name."""
    for labels, said in ((1, "a cross-encoder of one logit"), (2, "a cross-encoder of two logits")):
        base = save_cross_encoder("bert", tmp_path / "base", num_labels=labels)
        assert call(tmp_path, "--steps", 1, "--out", tmp_path / f"out-{labels}") == 130
        sizes = "the first step has 2 questions and 10 pairs, 2 positive and 8 negative"
        assert f"cerberank train teach: starts from {base}, {said}; {sizes}\n" in (error := capsys.readouterr().err)
    AutoModel.from_pretrained(base).save_pretrained(base)
    assert call(tmp_path, "--steps", 1) == 130
    assert "an encoder, and its classifier of two logits from random weights; " in capsys.readouterr().err
    for wrong, message in (
        (tiny_checkpoint, "`train distil --base"),
        (tmp_path / "typo", "typo: there is no such"),
    ):
        assert call(tmp_path, "--base", wrong) == 1
        assert message in (error := capsys.readouterr().err)
        assert error.count("\n") == 1
