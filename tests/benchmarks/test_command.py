"""Every benchmark runs, writes its three files and measures what it says; nothing here asks how fast anything is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import save_cross_encoder

from cerberank_benchmarks import command as bench
from cerberank_benchmarks.command import main
from cerberank_benchmarks.machine import multiplies_bf16
from cerberank_benchmarks.report import Chart, Report
from cerberank_benchmarks.settings import BenchmarkSettings

TINY = ["--rounds", "1", "--candidates", "7", "--layers", "2", "--width", "64"]


def report(out: Path, name: str) -> dict[str, Any]:
    """The JSON of a finished benchmark, whose table and picture lie beside it."""
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    content: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    assert (out / f"{name}.md").read_text().startswith(f"## {name}")
    assert content["context"]["machine"]["processor"]
    return content


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "questions.jsonl"
    question = {"question": "how tall is the tower ?"}
    candidates = [{"text": f"{number} metres", "label": int(number == 3)} for number in range(9)]
    path.write_text(json.dumps(question | {"candidates": candidates}) + "\n")
    return f"jsonl:{path}"


def test_the_engine_and_its_peer_give_equal_results(tmp_path: Path) -> None:
    """Offline and over HTTP, a tiny cross-encoder: every row is there, and the fp32 results are the peer's."""
    source = save_cross_encoder("bert", tmp_path / "source", num_labels=1, vocab_size=300, max_position_embeddings=140)
    options = ["--model", str(source), "--out", str(tmp_path / "out"), "--rounds", "1", "--candidates", "7", "9"]
    main(["offline", "http", *options])
    half = {"torch bf16", "CrossEncoder bf16"} if multiplies_bf16() else set()
    for name, others in (("offline", {"torch fp32"} | half), ("http", half)):
        rows = report(tmp_path / "out", name)["rows"]
        assert {(row["candidates"], row["by"]) for row in rows} == {
            (count, by) for count in (7, 9) for by in {"CrossEncoder", "fp32", "int8"} | others
        }
        assert all(row["seconds"] > 0 for row in rows)
        for count in (7, 9):
            peers = [row for row in rows if row["candidates"] == count and row["by"].startswith("CrossEncoder")]
            assert max(row["to the best peer"] for row in peers) == 1.0
        assert all(row["ratio"] >= row["to the best peer"] for row in rows)
        assert all(row["largest difference"] <= 1e-4 for row in rows if "fp32" in row["by"])


def test_load_is_measured_on_a_real_service(tmp_path: Path, tiny_checkpoint: Path, data: str) -> None:
    """Each arrival has one fate, in closed loops and under load."""
    out = tmp_path / "out"
    options = ["--checkpoint", str(tiny_checkpoint), "--data", data, "--seconds", "0.5", "--out", str(out)]
    code = main(["closed", "load", *TINY, *options, "--mix", "5:0.7", "200:0.3"])
    problems = report(out, "load")["problems"]  # the tests beside this one may take the processors
    assert code == bool(problems)
    assert all(problem.startswith("invalid: other programs took") for problem in problems)
    closed = [row for row in report(out, "closed")["rows"] if row["size"] == "all"]
    assert [(row["clients"], row["failed"]) for row in closed] == [(1, 0), (4, 0), (16, 0)]
    everything = [row for row in report(out, "load")["rows"] if row["size"] == "all"]
    assert [row["phase"] for row in everything] == ["half", "near", "overload", "after"]
    assert all(row["requests"] == row["answered"] + row["gave up"] for row in everything)


def test_a_second_run_measures_only_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same options print the old table; other options, or --again, measure anew."""
    measured: list[int] = []

    def count(settings: BenchmarkSettings, scratch: Path) -> Report:
        measured.append(settings.seed)
        chart = Chart(places=[1], series={"runs": [1.0]}, place_label="", value_label="")
        return Report(name="offline", text="Counts its runs.", rows=[{"runs": len(measured)}], chart=chart)

    monkeypatch.setitem(bench.BENCHMARKS, "offline", count)
    options = ["offline", "--out", str(tmp_path)]
    assert main(options) == 0
    printed = capsys.readouterr().out
    assert main(options) == 0
    assert capsys.readouterr().out == printed
    assert measured == [0]
    assert main([*options, "--seed", "1"]) == 0
    assert main([*options, "--seed", "1", "--again"]) == 0
    assert measured == [0, 1, 1]


def test_what_cannot_run_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Accuracy without labels, and a checkpoint that does not exist, fail with a sentence and leave no report."""
    assert main(["first-stage", "--out", str(tmp_path)]) == 1
    assert "--data" in capsys.readouterr().err
    assert main(["closed", "--checkpoint", str(tmp_path / "none"), "--out", str(tmp_path)]) == 1
    assert "none" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
