"""`cerberank export --calibrate`: which texts measure the ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.program import program
from tests.training.letters import jsonl, questions

from cerberank_training.commands import export as command


@pytest.mark.parametrize("named", [True, False])
def test_data_by_format_and_files_of_rank_are_taken(
    *, named: bool, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`jsonl:PATH` and, as for `import`, PATH give the same texts."""
    measured: dict[str, set[str]] = {}

    def export_checkpoint(*_: object, calibration: Any, **__: object) -> None:
        measured.update({text: {candidate.text for candidate in candidates} for text, candidates in calibration})

    monkeypatch.setattr(command, "export_checkpoint", export_checkpoint)
    data = jsonl(tmp_path)
    spec = data if named else data.removeprefix("jsonl:")
    assert program("export")([str(tiny_checkpoint), str(tmp_path / "out"), "--calibrate", spec]) == 0
    assert measured == {each.text: {row.candidate.text for row in each.candidates} for each in questions()}


@pytest.mark.parametrize(
    ("data", "message"), [("nowhere.jsonl", "No such file"), ("letters:nowhere", "data is named FORMAT:PATH")]
)
def test_data_that_are_not_there_are_refused(
    data: str, message: str, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program("export")([str(tiny_checkpoint), str(tmp_path / "out"), "--calibrate", data]) == 1
    assert message in capsys.readouterr().err
