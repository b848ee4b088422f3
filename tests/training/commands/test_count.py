"""`cerberank data count`: the sizes of data sets by subset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.program import program


def test_each_subset_has_its_questions_pairs_and_positives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A question with both labels, one of positives alone, one of negatives alone; a subset without questions is left
    out, and grades count as positives.
    """
    rows = [[0, 2, 1], [1], [0, 0]]
    for name, labels in (("all", rows), ("last", rows[-1:])):
        lines = [
            json.dumps(
                {"question": f"q{i}", "candidates": [{"text": f"t{j}", "label": label} for j, label in enumerate(row)]}
            )
            for i, row in enumerate(labels)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    every, last = (f"jsonl:{tmp_path / name}.jsonl" for name in ("all", "last"))
    assert program("data count")(["--data", every, "--data", last]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        f"| {every} | raw | 3 | 6 | 3 |",
        f"| {every} | clean | 2 | 4 | 3 |",
        f"| {every} | strict | 1 | 3 | 2 |",
        f"| {last} | raw | 1 | 2 | 0 |",
    ]
