"""`cerberank import` and `checkpoint first-stage` read the texts of int8 ranges as every command reads questions."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.program import program
from tests.tiny import save_cross_encoder
from tests.training.letters import jsonl, questions


@pytest.mark.parametrize("form", ["jsonl:", ""])
def test_int8_texts_are_data_by_format_or_a_file_of_rank(form: str, tmp_path: Path) -> None:
    """The card says on how many questions the ranges are measured."""
    source, out = save_cross_encoder("bert", tmp_path / "source"), tmp_path / "out"
    texts = form + jsonl(tmp_path).removeprefix("jsonl:")
    assert program("import")([str(source), str(out), "--forms", "none", "--int8-texts", texts]) == 0
    assert f"measured on {len(questions())} given questions" in (out / "README.md").read_text()


def test_texts_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = save_cross_encoder("bert", tmp_path / "source")
    assert program("import")([str(source), str(tmp_path / "out"), "--int8-texts", "csv:gone.csv"]) == 1
    assert "gone.csv: there is no such file" in capsys.readouterr().err
