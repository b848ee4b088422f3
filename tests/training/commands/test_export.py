"""`cerberank export`: a head for transformers and the hub, and the texts of --int8-texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.program import program
from transformers import AutoModelForSequenceClassification

main = program("export")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hugging-face"], "B3 3H1 with 3 heads and exits, and a sequence classifier is one encoder"),
        (["--hugging-face", "--head", "4"], "--head is from 1 to 3, not 4"),
        (["--hugging-face", "--forms", "int8"], "--forms is for a checkpoint"),
        (["--hugging-face", "--no-weights"], "--no-weights is for a checkpoint"),
        (["--hugging-face", "--gate", "jsonl:x"], "--gate is for a checkpoint"),
        (["--head", "1"], "--head is for --hugging-face"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    options: list[str], message: str, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that names the option, exit code 1 or 2, no folder."""
    assert main([str(tiny_checkpoint), str(tmp_path / "out"), *options]) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("cerberank export: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_head_is_written_with_a_word_on_long_pairs(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint caps questions, which no tokenizer of transformers does."""
    assert main([str(tiny_checkpoint), str(tmp_path / "out"), "--hugging-face", "--head", "2"]) == 0
    error = capsys.readouterr().err
    assert "pairs of more than 48 tokens, or questions of more than 16, are cut in another way" in error
    assert f"{tmp_path / 'out'} loads with AutoModelForSequenceClassification and CrossEncoder" in error
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").config.num_labels == 1


@pytest.mark.parametrize(
    ("data", "message"), [("nowhere.jsonl", "No such file"), ("letters:nowhere", "data is named FORMAT:PATH")]
)
def test_data_that_are_not_there_are_refused(
    data: str, message: str, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("export")([str(tiny_checkpoint), str(tmp_path / "out"), "--int8-texts", data]) == 1
    assert message in capsys.readouterr().err
