"""`train runs` on runs that the verbs wrote, finished, killed and running, and on folders that are nearly runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.program import program

from cerberank_training.runs.folder import running


@pytest.fixture(scope="module")
def runs(distilled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, a copy without its result, and others whose files are broken, odd or giant."""
    out = tmp_path_factory.mktemp("listed")
    for name in ("a", "deep/b"):
        shutil.copytree(distilled / "run", out / name)
    shutil.rmtree(out / "deep" / "b" / "checkpoint")
    log = out / "deep" / "b" / "log.jsonl"
    log.write_text("".join(line + "\n" for line in log.read_text().splitlines()[:3]) + '{"step": 9, "lo')
    (out / "broken").mkdir()
    (out / "broken" / "log.jsonl").write_text("no JSON\n")
    (out / "broken" / "record.json").write_text("[1]")
    (out / "odd").mkdir()
    odd = {"bound": {"settings": {"train": {"final_only": "x", "seed": []}}, "steps": {}}, "free": {}}
    (out / "odd" / "record.json").write_text(json.dumps(odd | {"results": {"best": "all"}}))
    for name in ("deep-json", "giant"):
        (out / name).mkdir()
    (out / "deep-json" / "record.json").write_text("[" * 5000)
    with (out / "giant" / "record.json").open("wb") as file:
        file.truncate(3 << 30)  # takes no room on the disk
    (out / "recorded").mkdir()
    free = {"recipe": "mini", "names": {"base": "minilm", "train": "jsonl:t", "dev": "jsonl:d"}}
    bound = {"settings": {"train": {"seed": 5}}, "steps": 90}
    record = {"verb": "distil", "result": "checkpoint", "bound": bound, "free": free, "calls": []}
    (out / "recorded" / "record.json").write_text(json.dumps(record | {"results": {"best": 61.5}}))
    (out / "empty").mkdir()
    return out


def listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    capsys.readouterr()
    assert program("train runs")([str(folder), "--json"]) == 0
    return {row["folder"]: row for row in json.loads(capsys.readouterr().out)}


def test_runs_are_listed_with_what_they_are(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data, steps done and asked for, the best MAP with its set, the seed, and how each has ended."""
    rows = listed(runs, capsys)
    assert set(rows) == {"a", "deep/b", "broken", "recorded", "odd", "deep-json", "giant"}
    a, b = rows["a"], rows["deep/b"]
    assert (a["recipe"], a["name"], a["steps"], a["of"]) == ("tiny", "run", 10, 10)
    assert (a["seed"], a["state"]) == (1, "finished")
    log = [json.loads(line) for line in (runs / "a" / "log.jsonl").read_text().splitlines()]
    measured = [line["dev_map"] for line in log if "dev_map" in line and line["step"]]
    assert a["best"] == pytest.approx(max(measured), abs=1e-3)
    assert (a["data"], a["dev"]) == ("jsonl:data.jsonl", "jsonl:dev.jsonl")
    assert (b["steps"], b["of"], b["state"]) == (2, 10, "killed")
    for name in ("broken", "odd", "deep-json", "giant"):
        assert [rows[name][field] for field in ("steps", "of", "best", "seed", "recipe")] == [None] * 5
    recorded = {"base": "minilm", "data": "jsonl:t", "dev": "jsonl:d", "seed": 5, "best": 61.5, "state": "killed"}
    assert rows["recorded"] | recorded | {"recipe": "mini", "of": 90, "steps": None} == rows["recorded"]
    assert all(row["age"] < 3600 for row in rows.values())


def test_a_run_in_progress_is_running(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While a process holds its folder, and no longer."""
    with running(runs / "deep" / "b"):
        assert listed(runs, capsys)["deep/b"]["state"] == "running"
    assert listed(runs, capsys)["deep/b"]["state"] == "killed"
    assert listed(runs / "a", capsys)["."]["state"] == "finished"


def test_the_table_and_its_errors(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a run under the header; a folder that is missing or holds no run is an error of one line."""
    assert program("train runs")([str(runs)]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split("  ")[0] == "folder"
    assert len(lines) == 7
    assert any(line.startswith("a ") and "10/10" in line and "finished" in line for line in lines)
    for folder, message in (
        (runs / "empty", "no run is in or below"),
        (runs / "nowhere", "nowhere: there is no such folder\n"),
    ):
        assert program("train runs")([str(folder)]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
