"""Every piece of the GPU benchmark runs on a processor; no test asks for speed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cerberank_benchmarks.__main__ import main as benchmarks
from cerberank_benchmarks.gpu import suite
from cerberank_benchmarks.gpu.lab import TINY, Findings, Lab, lab_for
from cerberank_benchmarks.gpu.networks import MINI, random_ranker
from cerberank_benchmarks.gpu.suite import PIECES, Piece, main, measure
from cerberank_models.backends.cuda_graphs import Compute
from cerberank_models.checkpoint.bundled import default_checkpoint

TOKENIZER = default_checkpoint() / "tokenizer.json"
MAY_BE_ZERO = ("difference", "error", "bitwise equal", "MB", "memory", "alpha")


def lab(tmp_path: Path, **changes: Any) -> Lab:
    return lab_for("cpu", sizes=TINY, scratch=tmp_path, tokenizer=TOKENIZER, **changes)


def test_every_piece_runs_and_has_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one run, without problems; times and rates are positive. The printed record is the written one."""
    out = tmp_path / "out"
    assert benchmarks(["gpu", "--device", "cpu", "--tiny", "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} <= {"gpu.json", "gpu.md", "server.log"}
    assert (out / "gpu.md").read_text() in capsys.readouterr().out
    pieces = json.loads((out / "gpu.json").read_text())["pieces"]
    assert [piece["name"] for piece in pieces] == list(PIECES)
    for piece in pieces:
        assert (piece["status"], piece["reason"], piece["problems"]) == ("ran", "", [])
        assert piece["rows"]
        for row in piece["rows"]:
            for column, value in row.items():
                if isinstance(value, float) and not any(word in column for word in MAY_BE_ZERO):
                    assert value > 0, (piece["name"], column)


def test_a_capture_that_fails_is_no_measurement_of_graphs(tmp_path: Path) -> None:
    """A service goes on without graphs; a piece would take eager times for theirs."""

    def fail(_: Compute) -> Compute:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    failing = lab(tmp_path, capture=fail)
    with pytest.raises(RuntimeError, match="graphs of 256 tokens could not be captured"):
        failing.backend(random_ranker(failing, MINI), graph_tokens=256)
    assert failing.backend(random_ranker(failing, MINI)).graph_tokens == 0


def test_a_wrong_kernel_is_a_problem(tmp_path: Path) -> None:
    """The run has failed, and the report names it."""
    right = lab(tmp_path).kernel
    wrong = lab(tmp_path, kernel=lambda *given: 1.01 * right(*given))
    record = measure(wrong, ["kernel"], tmp_path / "out")
    (piece,) = [piece for piece in record.pieces if piece.rows]
    assert record.failed
    assert len(piece.problems) == len(piece.rows)
    assert "Problem: kernel" in (tmp_path / "out" / "gpu.md").read_text()


def fails(_: Lab) -> Findings:
    yield {"figure": 1.0}
    raise ValueError("made up")


def works(_: Lab) -> Findings:
    yield {"x": 1}


def test_a_failed_piece_does_not_keep_the_others_from_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error's type and message are recorded with the rows before it; the next piece runs; the run has failed."""
    pieces = {"first": Piece("Fails.", fails, 60), "second": Piece("Works.", works, 60)}
    monkeypatch.setattr(suite, "PIECES", pieces)
    record = measure(lab(tmp_path), list(pieces), tmp_path / "out")
    first, second = json.loads((tmp_path / "out" / "gpu.json").read_text())["pieces"]
    assert (first["status"], first["reason"], first["rows"]) == ("failed", "ValueError: made up", [{"figure": 1.0}])
    assert (second["status"], second["rows"]) == ("ran", [{"x": 1}])
    assert record.failed


def test_what_does_not_fit_into_the_time_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece ends after its own time, or at the deadline of all: it keeps its rows and is closed; the next is not
    begun.
    """
    now, closed = [0.0], []

    def slow(_: Lab) -> Findings:
        try:
            for figure in range(5):
                now[0] += 1.0
                yield {"figure": figure}
        finally:
            closed.append(True)

    pieces = {"short": Piece("Short.", slow, 2.5), "slow": Piece("Slow.", slow, 60), "next": Piece("Next.", slow, 60)}
    monkeypatch.setattr(suite, "PIECES", pieces)
    sizes = replace(TINY, limit_factor=1.0)
    timed = lab_for("cpu", sizes=sizes, scratch=tmp_path, tokenizer=TOKENIZER, clock=lambda: now[0], end=4.5)
    record = measure(timed, list(pieces), tmp_path / "out")
    short, slowly, never = record.pieces
    assert (short.status, short.reason, len(short.rows)) == ("cut", "out of time", 3)
    assert (slowly.status, slowly.reason, len(slowly.rows), closed) == ("cut", "out of time", 2, [True, True])
    assert (never.status, never.reason, never.rows) == ("not run", "out of time", [])
    assert not record.failed


def test_a_wrong_call_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No GPU, no tokenizer, an unknown piece: exit code 2 and a sentence."""
    assert main(["--out", str(tmp_path / "out")]) == 2
    assert "no GPU" in capsys.readouterr().err
    assert main(["--device", "cpu", "--tokenizer", str(tmp_path / "none.json")]) == 2
    assert "--tokenizer" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["--pieces", "ceilings,nothing"])
    assert "there is no piece nothing" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
