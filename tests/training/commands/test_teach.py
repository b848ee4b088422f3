"""`cerberank teach`: SSP's settings reach the run, and what cannot be meant is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tiny import save_cross_encoder
from tests.training.letters import jsonl
from transformers import AutoConfig, AutoModel

from cerberank_models.importing.teacher_input import TeacherInput
from cerberank_training.commands.teach import main


def call(folder: Path, *changes: object) -> int:
    arguments = ["--base", folder / "base", "--train", jsonl(folder), "--dev", jsonl(folder), "--out", folder / "out"]
    common = ["--device", "cpu", "--precision", "fp32", "--max-length", 32, "--questions-per-step", 2]
    return main([str(argument) for argument in (*arguments, *common, *changes)])


def test_the_papers_settings(tmp_path: Path) -> None:
    """Table 3 of SSP: epochs, early stop by dev MAP, no decay, clipping, three token types."""
    save_cross_encoder("bert", tmp_path / "base")
    settings = ["--context", "--token-types", "fresh", "--epochs", "1.6", "--evaluate-every", 1, "--patience", 2]
    settings += ["--weight-decay", 0, "--clip", 1, "--warmup", 0.5, "--dev-questions", "all", "--learning-rate", 1e-9]
    assert call(tmp_path, *settings) == 0
    assert AutoConfig.from_pretrained(tmp_path / "out").type_vocab_size == 3
    assert TeacherInput.read(str(tmp_path / "out")) == TeacherInput(max_length=32, context=True)
    states = [json.loads(path.read_text()) for path in (tmp_path / "out" / "run").glob("*/trainer_state.json")]
    last = max(states, key=lambda state: state["global_step"])
    assert last["max_steps"] == 4  # 1.6 epochs of five questions, two a step
    assert last["global_step"] == 3  # the first evaluation and two without a gain


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--steps", 0], "steps must be at least 1, not 0"),
        (["--epochs", 0], "--epochs is 0.0; it must be above 0"),
        (["--steps", 2, "--evaluate-every", 3], "evaluate_every must be at most the 2 steps, not 3"),
        (["--patience", 0], "patience must be at least 1"),
        (["--warmup", 99999], "warmup 99999 does not fit into steps"),
        (["--dropout", "nan"], "dropout must be at least 0 and below 1"),
        (["--weight-decay", -1], "weight_decay must be at least 0"),
        (["--clip", 0], "clip must be above 0"),
        (["--learning-rate", "inf"], "learning_rate must be above 0"),
        (["--seed", -1], "seed must be at least 0"),
        (["--own", -1], "--own is -1"),
        (["--dev-questions", 0], "--dev-questions is 0"),
        (["--max-length", 5], "max_length must be more than 7"),
        (["--token-types", "fresh"], "token_types fresh are for a teacher that reads context"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    changes: list[object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on standard error that names the setting, exit code 1, no folder."""
    assert call(tmp_path, *changes) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_run_goes_on_only_with_its_own_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The name of the field that differs, and both values; before its first step a run may be begun anew."""
    save_cross_encoder("bert", tmp_path / "base")
    (tmp_path / "out" / "run").mkdir(parents=True)
    (tmp_path / "out" / "settings.json").write_text(json.dumps({"seed": 1}))
    assert call(tmp_path, "--seed", 2, "--steps", 300) == 1
    assert "was begun with" in capsys.readouterr().err
    (tmp_path / "out" / "run").rmdir()
    (tmp_path / "base" / "tokenizer.json").unlink()
    assert call(tmp_path, "--seed", 2, "--steps", 300) == 1
    assert "was begun with" not in capsys.readouterr().err  # the base cannot be read


def test_single_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SSP's epochs are of pairs, questions without a positive kept on demand; what is for groups is refused."""
    save_cross_encoder("bert", tmp_path / "base")
    pairs = ["--sampling", "pairs", "--unanswered", "keep"]
    assert call(tmp_path, *pairs, "--epochs", "0.4", "--evaluate-every", 5) == 0
    (state,) = (tmp_path / "out" / "run").glob("checkpoint-5/trainer_state.json")
    assert json.loads(state.read_text())["max_steps"] == 5  # 0.4 epochs of 25 pairs, two a step
    assert call(tmp_path, *pairs, "--own", 2) == 1
    assert "--own is for --sampling grouped" in capsys.readouterr().err
    assert call(tmp_path, "--unanswered", "keep") == 1
    assert "--unanswered is for --sampling pairs" in capsys.readouterr().err
    assert call(tmp_path, *pairs, "--loss", "both") == 1
    assert "--loss both compares" in capsys.readouterr().err


def test_what_it_starts_from_is_said_or_refused(
    tmp_path: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One logit, two, and an encoder; a checkpoint of ours is refused with what it can be, a wrong path by its name."""
    for labels, said in ((1, "a cross-encoder of one logit"), (2, "a cross-encoder of two logits")):
        base = save_cross_encoder("bert", tmp_path / "base", num_labels=labels)
        assert call(tmp_path, "--steps", 1, "--out", tmp_path / f"out-{labels}") == 0
        assert f"cerberank teach: starts from {base}, {said}\n" in capsys.readouterr().err
    AutoModel.from_pretrained(base).save_pretrained(base)
    assert call(tmp_path, "--steps", 1) == 0
    assert "an encoder, and its classifier of two logits from random weights\n" in capsys.readouterr().err
    for wrong, message in (
        (tiny_checkpoint, "`cerberank distil --base"),
        (tmp_path / "typo", "typo: there is no such"),
    ):
        assert call(tmp_path, "--base", wrong) == 1
        assert message in (error := capsys.readouterr().err)
        assert error.count("\n") == 1
