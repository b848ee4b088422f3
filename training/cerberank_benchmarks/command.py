"""Measures speed, cost and behaviour under load on this machine, in comparison with peers with the same weights.

Every benchmark writes a table, a chart and JSON to `--out` as soon as it is done; a killed run resumes with the next
benchmark. Compared systems run in turn and figures are medians, so that noise of the machine affects all systems alike.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cerberank_benchmarks.clients.server import ServerError
from cerberank_benchmarks.machine import describe_machine
from cerberank_benchmarks.pieces import closed, first_stage, frontier, offline, open_loop, over_http
from cerberank_benchmarks.report import Report, markdown, write_report
from cerberank_benchmarks.settings import BenchmarkSettings, DataNeededError
from cerberank_models.checkpoint.folder import CheckpointError
from cerberank_models.output import note, say
from cerberank_training.data import DataError

BENCHMARKS: dict[str, Callable[[BenchmarkSettings, Path], Report]] = {
    "offline": offline.run,
    "http": over_http.run,
    "closed": closed.run,
    "load": open_loop.run,
    "first-stage": first_stage.run,
    "frontier": frontier.run,
}
DEFAULT = ("offline", "http", "closed", "load")
"""Benchmarks that run when none is named. The others need data and a checkpoint."""
QUICK = ("offline", "closed")


def main(argv: list[str]) -> int:
    """Run the benchmarks; returns 1 if results that must be equal differ, or a benchmark could not run."""
    arguments = _parser().parse_args(argv)
    options = {
        name: _frozen(value)
        for name, value in vars(arguments).items()
        if name in BenchmarkSettings.__slots__ and value is not None
    }
    settings = BenchmarkSettings(**options)
    names = arguments.benchmarks or (QUICK if arguments.quick else DEFAULT)
    if arguments.quick and not arguments.candidates:
        settings = replace(settings, candidates=(200,), rounds=arguments.rounds or 3)
    code = 0
    for name in names:
        try:
            problems = _measure(name, settings, arguments.out, again=arguments.again)
        except (CheckpointError, DataError, DataNeededError, ServerError, OSError) as error:
            note(f"cerberank_benchmarks: {name}: {error}")
            code = 1
        else:
            code = max(code, 1 if problems else 0)
    return code


def _measure(name: str, settings: BenchmarkSettings, out: Path, *, again: bool) -> bool:
    """Run a benchmark, unless there is a report with the same settings; returns True if the report has problems."""
    described = json.loads(json.dumps(asdict(settings), default=_name))
    described["data"] = [_name(data) for data in settings.data]
    done = None if again else _finished(out / f"{name}.json", described)
    if done is not None:
        say((out / f"{name}.md").read_text(encoding="utf-8"))
        return bool(done["problems"])
    machine = describe_machine()  # before the benchmark itself loads the machine
    with tempfile.TemporaryDirectory() as scratch:
        report = BENCHMARKS[name](settings, Path(scratch))
    context = {"settings": described, "machine": machine}
    write_report(report, out, context)
    say(markdown(report, context))
    return bool(report.problems)


def _finished(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if report.get("context", {}).get("settings") == settings else None


def _name(path: Path | str) -> str:
    """The file name without its folder, so that reports do not reveal folders of the machine."""
    form, colon, rest = str(path).rpartition(":")
    return f"{form}{colon}{Path(rest).name}"


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _share(text: str) -> tuple[int, float]:
    size, _, share = text.partition(":")
    return int(size), float(share)


def _parser() -> argparse.ArgumentParser:
    defaults = BenchmarkSettings()
    parser = argparse.ArgumentParser(
        prog="python -m cerberank_benchmarks",
        description=__doc__,
        epilog="A GPU is measured by another program: `gpu --help`.",
    )
    parser.add_argument(
        "benchmarks", nargs="*", choices=[*BENCHMARKS, []], metavar="BENCHMARK", help=", ".join(BENCHMARKS)
    )
    # The choice of benchmarks, and their reports.
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}, 200 candidates, 3 rounds")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder of the reports")
    parser.add_argument("--again", action="store_true", help="measure even if there is a report with the same options")
    # The questions and the systems: fields of `BenchmarkSettings`.
    parser.add_argument(
        "--candidates", type=int, nargs="+", help=f"candidates per question; default {defaults.candidates}"
    )
    parser.add_argument("--rounds", type=int, help=f"default {defaults.rounds}")
    parser.add_argument("--words", type=int, nargs=2, metavar=("LEAST", "MOST"), help="words per made-up candidate")
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="FORMAT:PATH",
        help="real candidates, such as squad-as2-article:dev.jsonl.gz; several sets for `frontier`",
    )
    parser.add_argument(
        "--questions", type=int, help="number of questions of the data, for `first-stage` and `frontier`"
    )
    parser.add_argument("--model", type=Path, help="Hugging Face cross-encoder folder (default: MiniLM-L6's shape)")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json for generated networks")
    parser.add_argument("--layers", type=int, help=f"layers of generated networks; default {defaults.layers}")
    parser.add_argument("--width", type=int, help=f"width of generated networks; default {defaults.width}")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        help="checkpoint for `closed` and `load` (default: bundled); for `first-stage` and `frontier` one "
        "with a first stage",
    )
    parser.add_argument("--bi-encoder", type=Path, help="sentence-transformers folder, for `frontier`")
    parser.add_argument("--infinity", type=Path, metavar="PYTHON", help="python of an environment with infinity-emb")
    parser.add_argument("--precision", help=f"ONNX form, where only one is measured; default {defaults.precision}")
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"duration of each phase of `load`, and of `closed` in all; default {defaults.seconds:g}",
    )
    parser.add_argument(
        "--queue-seconds",
        type=float,
        help=f"`load`: the server's bound on the time in the queue; default {defaults.queue_seconds:g}",
    )
    parser.add_argument(
        "--mix", type=_share, nargs="+", metavar="SIZE:SHARE", help=f"questions under load; default {defaults.mix}"
    )
    parser.add_argument("--seed", type=int)
    return parser
