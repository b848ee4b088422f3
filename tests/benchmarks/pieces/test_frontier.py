"""Every system ranks the same questions, on a tiny checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.first_stages import attached

from cerberank_benchmarks.command import main
from cerberank_benchmarks.machine import multiplies_bf16
from cerberank_benchmarks.pieces.frontier import BM25, OURS, SCHEDULES, WITH_FIRST
from cerberank_models.checkpoint.folder import read_checkpoint


def test_a_row_for_each_point_and_a_picture_of_panels(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sets at two depths, of which the second set lacks texts for 11: the same questions for all systems."""
    monkeypatch.setattr("cerberank_benchmarks.pieces.frontier.default_checkpoint", lambda: tiny_checkpoint)
    monkeypatch.setattr("cerberank_benchmarks.pieces.frontier.WARM_UP", 1)  # the first candidate is not a positive
    attached(read_checkpoint(tiny_checkpoint), tmp_path / "first")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        lines = [
            {"question": f"{own} ?", "candidates": [{"text": f"{own} {n} metres", "label": n % 2} for n in range(5)]}
            for own in ("paris", "tower", *([name] if name == "one" else []))
        ]
        (tmp_path / name / "dev.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = ["--data", *(f"jsonl:{tmp_path / name / 'dev.jsonl'}" for name in ("one", "two"))]
    options = ["--checkpoint", str(tmp_path / "first"), "--candidates", "6", "11", "--out", str(tmp_path / "out")]
    assert main(["frontier", *data, *options]) == 0
    rows = json.loads((tmp_path / "out" / "frontier.json").read_text())["rows"]
    points = {(OURS, schedule) for schedule in SCHEDULES} | {(WITH_FIRST, "stored vectors"), (BM25, "")}
    points.add(("CrossEncoder bf16" if multiplies_bf16() else "CrossEncoder", ""))
    figures = {(row["set"], row["candidates"], row["system"], row["point"]): row for row in rows}
    for count in (6, 11):
        for part, questions in (("one", 3), ("two", 2), ("all", 5)):
            some = [row for row in rows if (row["set"], row["candidates"]) == (part, count)]
            assert {(row["system"], row["point"]) for row in some} == points
            assert {row["questions"] for row in some} == {questions}
            assert all(row["p50 ms"] > 0 and 0 < row["MAP, %"] <= 100 for row in some)
        for point in points:
            # Sets count equally, and not by their questions.
            one, two, both = (figures[part, count, *point] for part in ("one", "two", "all"))
            assert both["MAP, %"] == pytest.approx((one["MAP, %"] + two["MAP, %"]) / 2)
            assert both["standard error"] == pytest.approx(
                (one["standard error"] ** 2 + two["standard error"] ** 2) ** 0.5 / 2
            )
    assert (tmp_path / "out" / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_one_set_is_needed_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With two sets it would be unclear which one was measured."""
    assert main(["first-stage", "--data", "jsonl:a", "jsonl:b", "--out", str(tmp_path)]) == 1
    assert "first-stage needs one set of questions" in capsys.readouterr().err
