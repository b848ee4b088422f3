"""Settings and results of the runs behind a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerberank_training.commands.sweep import runs
from cerberank_training.commands.sweep.runs import evaluate_run, finished

LINE = '{"id": "1", "candidates": "", "labels": [1], "rankings": {"final": {"metrics": {}, "ranks": [0]}}}\n'


def test_results_are_found_by_run_seed_and_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluated once; runs whose names begin alike and test sets of the same name in two folders are told apart."""
    calls = []

    def evaluate(name: str, *arguments: object) -> None:
        calls.append(name)
        Path(str(arguments[-1])).write_text(LINE)

    monkeypatch.setattr(runs, "run_command", evaluate)
    for name in ("hard-2", "hard-1", "hard-one-3"):
        (tmp_path / name).mkdir()
        for _ in range(2):
            evaluate_run(tmp_path / name, "jsonl:a/test.jsonl", source=(), sample=None)
    assert calls == ["evaluate"] * 3
    assert list(finished(tmp_path, "hard", "jsonl:a/test.jsonl")) == [1, 2]
    assert finished(tmp_path, "hard", "jsonl:b/test.jsonl") == {}
