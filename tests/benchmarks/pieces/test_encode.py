from __future__ import annotations

from pathlib import Path

from cerberank_benchmarks.pieces import encode
from cerberank_benchmarks.settings import BenchmarkSettings


def test_cold_and_cached_runs_are_what_they_are_called(tmp_path: Path) -> None:
    """Every system has its times, the ratios are to the one without a cache, and no cold text is found."""
    report = encode.run(BenchmarkSettings(candidates=(3, 7), rounds=1), tmp_path)
    assert not report.problems
    assert [row["candidates"] for row in report.rows] == [3, 7]
    for row in report.rows:
        assert all(float(row[name]) > 0 for name in encode.SYSTEMS)
        assert all(float(row[f"{name} / no cache"]) > 0 for name in encode.SYSTEMS[1:])
    assert {len(values) for values in report.chart.series.values()} == {2}
