from __future__ import annotations

import json
from pathlib import Path

from cerberank_benchmarks.report import Chart, Report, markdown, write_report


def test_a_report_is_a_table_a_picture_and_json(tmp_path: Path) -> None:
    """All three hold the same figures; problems are listed under the table."""
    report = Report(
        name="speed",
        text="How fast.",
        rows=[{"candidates": 7, "seconds": 0.123456}, {"candidates": 9, "seconds": 2.0}],
        chart=Chart(places=[7, 9], series={"s": [0.1, 2.0]}, place_label="n", value_label="s"),
        problems=["scores differ"],
    )
    write_report(report, tmp_path, {"machine": {"cores": "2"}})
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "speed.json").read_text())
    assert content["rows"] == list(report.rows)
    assert content["context"]["machine"] == {"cores": "2"}
    text = (tmp_path / "speed.md").read_text()
    assert text == markdown(report, content["context"])
    assert "| 7 | 0.1235 |" in text
    assert "cores 2" in text
    assert text.endswith("Problem: scores differ\n")
