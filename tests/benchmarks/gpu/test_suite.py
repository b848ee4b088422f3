"""Every piece of the GPU benchmark runs on a processor and reports what it names; no test asks for speed."""

from __future__ import annotations

import io
import json
import re
import time
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cerberank_benchmarks.__main__ import main as benchmarks
from cerberank_benchmarks.gpu import suite
from cerberank_benchmarks.gpu.suite import PIECES, Piece, main, measure
from cerberank_benchmarks.gpu.lab import TINY, Findings, Lab, Problem, Sizes, lab_for
from cerberank_models.backends.cuda_graphs import Compute
from cerberank_models.checkpoint.bundled import default_checkpoint

ROOT = Path(__file__).resolve().parents[3]
TOKENIZER = default_checkpoint() / "tokenizer.json"
KINDS: dict[str, set[str]] = {
    "ceilings": {"of", "rate", "unit"},
    "kernel": {"case", "relative error", "bitwise"},
    "parity": {"largest logit error", "mean logit error", "same first", "distinct scores", "bitwise"},
    "invariance": {"other pairs", "largest difference", "bitwise equal"},
    "graphs": {"eager, ms", "graphs, ms", "capture, s", "capture, MB", "capture beside an engine"},
    "steps": {"tokens/s", "share of the matmul rate", "smallest step with 95%"},
    "table5": {"ms", "pairs/s", "TFLOP/s", "B11 3H1 / B11 1H1", "time / op count", "ensemble of 3 BASE / B11 3H1"},
    "peers": {"batch", "pairs/s", "ratio", "largest difference"},
    "shapes": {"M", "N", "K", "product, TFLOP/s", "fused, TFLOP/s", "fused, difference", "FP8, TFLOP/s"},
    "lock": {"form", "busy threads", "launch, ms", "launch p95, ms", "step, ms"},
    "encode": {"processes", "threads of a process", "inner threads", "arenas", "texts/s"},
    "fusion": {"eager / eager, fused", "compile and capture, s"},
    "served": {"encode workers", "start, s", "clients", "pairs/s", "p50 ms", "p99 ms", "encode ms", "graph hits"},
    "faults": {"raised", "status", "ready", "out of memory"},
    "training": {"verb", "questions/s"},
}
"""Columns that each piece must have."""
MAY_BE_ZERO = ("difference", "error", "bitwise equal", "MB", "memory", "alpha")


def lab(tmp_path: Path, **changes: Any) -> Lab:
    return lab_for("cpu", sizes=TINY, scratch=tmp_path, tokenizer=TOKENIZER, **changes)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The pieces of one run, by name; in this process, because importing the libraries took a third of its time."""
    out, printed = tmp_path_factory.mktemp("gpu"), io.StringIO()
    with redirect_stdout(printed):
        assert benchmarks(["gpu", "--device", "cpu", "--tiny", "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} <= {"gpu.json", "gpu.md", "server.log"}
    content = json.loads((out / "gpu.json").read_text())
    assert content["machine"]["processor"]
    assert content["settings"] == {"device": "cpu", "precision": "fp32", "sizes": "tiny"}
    assert (out / "gpu.md").read_text() in printed.getvalue()
    return {piece["name"]: piece for piece in content["pieces"]}


def test_every_piece_runs_and_has_its_figures(tiny: dict[str, dict[str, Any]]) -> None:
    """In their order, without problems, with the columns that they promise; times and rates are positive."""
    assert list(tiny) == list(PIECES) == list(KINDS)
    for name, piece in tiny.items():
        assert (piece["status"], piece["reason"], piece["problems"]) == ("ran", "", [])
        columns = {column for row in piece["rows"] for column in row}
        assert KINDS[name] - columns == set()
        for row in piece["rows"]:
            for column, value in row.items():
                if isinstance(value, float) and not any(word in column for word in MAY_BE_ZERO):
                    assert value > 0, (name, column)


def test_the_networks_and_forms_are_all_there(tiny: dict[str, dict[str, Any]]) -> None:
    """Table 5 has every network and drop ratio, serving both kinds of texts, training both verbs."""
    named = {row["network"] for row in tiny["table5"]["rows"] if "network" in row}
    cascades = {f"B11 3H1, exits 4 6 8 10, alpha {alpha}" for alpha in ("0", "0.3", "0.5")}
    networks = {"BASE", "ALBERT-base", "B11 1H1", "B11 3H1", "LARGE", "ALBERT-xxlarge"}
    networks |= {"ensemble of 3 BASE", "ensemble of ALBERT-base and 2 BASE", "ensemble of 3 LARGE"}
    assert named == networks | cascades
    costs = [round(row["op count"], 2) for row in tiny["table5"]["rows"] if "op count" in row]
    assert costs == [1.0, 0.65, 0.51]
    served = [row for row in tiny["served"]["rows"] if "clients" in row]
    assert {(row["clients"], row["texts"]) for row in served} == {(n, t) for n in (1, 2) for t in ("cold", "cached")}
    products = [(row["network"], row["product"]) for row in tiny["shapes"]["rows"] if "product" in row]
    assert len(products) == len(set(products)) == 10
    fused = [row["fused, difference"] for row in tiny["shapes"]["rows"] if row.get("product") == "up"]
    assert all(0 < difference < 1e-3 for difference in fused)  # GELU by erf on a processor, by tanh on a GPU
    locks = {(row["form"], row["busy threads"]) for row in tiny["lock"]["rows"]}
    assert locks == {(form, busy) for form in ("eager", "graph") for busy in (0, 1)}
    assert {row["arenas"] for row in tiny["encode"]["rows"]} == {"default", "2"}
    assert [row["verb"] for row in tiny["training"]["rows"]] == ["teach", "distil"]
    assert [row["raised"] for row in tiny["faults"]["rows"] if "raised" in row] == ["OutOfMemoryError"]
    assert {row["network"] for row in tiny["peers"]["rows"]} == {"MiniLM-L6", "B11 1H1"}


def test_a_wrong_kernel_is_a_problem(tmp_path: Path) -> None:
    """Attention that forgets the last token of every pair is found by the definition, and the exit is a failure."""
    right = lab(tmp_path).kernel
    assert right is not None

    def wrong(query: Any, key: Any, value: Any, *rest: Any) -> Any:
        out = right(query, key, value, *rest)
        return out + 0.01 * out.abs().nan_to_num().mean()

    record = measure(lab(tmp_path, kernel=wrong), ["kernel"], tmp_path / "out")
    assert record.failed
    (piece,) = [piece for piece in record.pieces if piece.rows]
    assert len(piece.problems) == len(piece.rows)
    assert "Problem: kernel" in (tmp_path / "out" / "gpu.md").read_text()


def test_a_capture_that_is_not_repeated_is_a_problem(tmp_path: Path) -> None:
    """A graph that gives its first result again and again differs from the same network without graphs."""

    def stuck(compute: Compute) -> Compute:
        result = compute()
        return lambda: result

    record = measure(lab(tmp_path, capture=stuck), ["parity"], tmp_path / "out")
    assert any("graphs" in problem for piece in record.pieces for problem in piece.problems)


def fails(_: Lab) -> Findings:
    yield {"figure": 1.0}
    raise ValueError("made up")


def works(_: Lab) -> Findings:
    yield {"x": 1}


def finds(_: Lab) -> Findings:
    yield Problem("scores differ")


def test_a_failed_piece_does_not_keep_the_others_from_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error's type and message are recorded with the rows before it; the next piece runs; the run has failed."""
    pieces = {"first": Piece("Fails.", fails), "second": Piece("Works.", works)}
    monkeypatch.setattr(suite, "PIECES", pieces)
    record = measure(lab(tmp_path), list(pieces), tmp_path / "out")
    first, second = json.loads((tmp_path / "out" / "gpu.json").read_text())["pieces"]
    assert (first["status"], first["reason"], first["rows"]) == ("failed", "ValueError: made up", [{"figure": 1.0}])
    assert (second["status"], second["rows"]) == ("ran", [{"x": 1}])
    assert record.failed


def test_a_problem_makes_the_run_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece that runs to its end and finds a wrong result."""
    monkeypatch.setattr(suite, "PIECES", {"only": Piece("Finds.", finds)})
    record = measure(lab(tmp_path), ["only"], tmp_path / "out")
    assert [(piece.status, piece.problems) for piece in record.pieces] == [("ran", ["scores differ"])]
    assert record.failed


def test_what_does_not_fit_into_the_time_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline passes within the first piece: it keeps its rows and is closed; the second one is not begun."""
    now, closed = [0.0], []

    def slow(_: Lab) -> Findings:
        try:
            for figure in range(5):
                now[0] += 1.0
                yield {"figure": figure}
        finally:
            closed.append(True)

    monkeypatch.setattr(suite, "PIECES", {"slow": Piece("Slow.", slow), "next": Piece("Next.", slow)})
    record = measure(lab(tmp_path, clock=lambda: now[0], end=1.5), ["slow", "next"], tmp_path / "out")
    first, second = record.pieces
    assert (first.status, first.reason, len(first.rows), closed) == ("cut", "out of time", 2, [True])
    assert (second.status, second.reason, second.rows) == ("not run", "out of time", [])
    assert not record.failed


def test_a_figure_ends_at_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure whose runs take longer than there is time ends between two of them, not after all."""
    now = [0.0]

    def pass_time() -> None:
        now[0] += 1.0

    def endless(lab: Lab) -> Findings:
        yield {"s": lab.seconds(pass_time)}

    monkeypatch.setattr(suite, "PIECES", {"endless": Piece("Endless.", endless)})
    sizes = Sizes(warm_up=10, rounds=1000, figure_seconds=1000)
    record = measure(replace(lab(tmp_path, clock=lambda: now[0], end=50.0), sizes=sizes), ["endless"], tmp_path / "out")
    assert [(piece.status, piece.rows) for piece in record.pieces] == [("cut", [])]
    assert now[0] == 50.0


def test_table_5_is_captured_beyond_the_size_of_the_service(tmp_path: Path) -> None:
    """A question of 300 tokens where the service would capture 256: every stage of every network runs as a graph.

    Two rounds give a mean and a standard deviation.
    """
    sizes = replace(TINY, candidates=15, batch=15, graph_tokens=256, rounds=2)
    record = measure(replace(lab(tmp_path), sizes=sizes), ["table5"], tmp_path / "out")
    (rows,) = [piece.rows for piece in record.pieces if piece.name == "table5"]
    spread = [row["standard deviation"] / row["mean ms a candidate"] for row in rows if "network" in row]
    assert all(0 < each < 2**0.5 for each in spread)  # the most that two positive numbers have
    assert {row["stages as graphs"] for row in rows if "network" in row} == {1.0}


def test_a_process_that_is_ended_at_the_deadline_is_no_failure(tmp_path: Path) -> None:
    """`distil` has just been started: it is ended at once, the piece is cut and keeps what `teach` gave."""
    here = lab(
        tmp_path, end=50.0, clock=lambda: 100.0 if (tmp_path / "distil-1.log").exists() else time.monotonic() / 1e9
    )
    record = measure(here, ["training"], tmp_path / "out")
    (piece,) = [piece for piece in record.pieces if piece.name == "training"]
    assert (piece.status, [row["verb"] for row in piece.rows]) == ("cut", ["teach"])
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # a process that has ended meanwhile
            assert str(tmp_path).encode() not in path.read_bytes()


def test_an_error_after_the_deadline_is_a_cut_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of clients which were ended then."""
    now = [0.0]

    def late(_: Lab) -> Findings:
        yield {"figure": 1.0}
        now[0] = 2.0
        raise RuntimeError("a process failed")

    monkeypatch.setattr(suite, "PIECES", {"late": Piece("Late.", late)})
    record = measure(lab(tmp_path, clock=lambda: now[0], end=1.0), ["late"], tmp_path / "out")
    (piece,) = record.pieces
    assert (piece.status, piece.reason) == ("cut", "out of time: RuntimeError: a process failed")


def test_the_two_documented_commands_measure_every_piece_once() -> None:
    """Each for eight minutes, into the folder that is kept."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    commands = re.findall(r'cerberank_benchmarks gpu --minutes 8 --out "\$OUT/(\w)" \\\n +--pieces (\S+)', page)
    assert [name for name, _ in commands] == ["a", "b"]
    assert [piece for _, pieces in commands for piece in pieces.split(",")] == list(PIECES)


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
