"""`cerberank strategies`: train the same student by every strategy of the paper and compare (CERBERUS table 3).

Every run is a `cerberank distil` and an `evaluate` in processes of their own, in OUT/<strategy>-<seed>. Finished runs
are not repeated, so a killed call resumes when it is repeated, and more seeds can be added later. Writes OUT/table.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_training.evaluation.per_question import Records, read_records
from cerberank_training.evaluation.strategy_table import PlannedRun, plan, strategy_table
from cerberank_training.students.recipes import RECIPES


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    runs = [
        run
        for run in plan([str(path) for path in arguments.teacher], [str(path) for path in arguments.hydra])
        if not arguments.only or run.strategy in arguments.only
    ]
    try:
        for seed in arguments.seeds:
            for run in runs:
                _train(run, seed, arguments)
                for test in arguments.test:
                    _evaluate(_folder(run, seed, arguments), test, arguments)
                _report(arguments)
    except (subprocess.CalledProcessError, ValueError, OSError) as error:
        print(f"cerberank strategies: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print((arguments.out / "table.md").read_text(encoding="utf-8"))  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank strategies", description=__doc__)
    parser.add_argument("--recipe", choices=sorted(RECIPES), required=True)
    parser.add_argument("--base", required=True)
    parser.add_argument("--groups", metavar="FORMAT:PATH", required=True, help="the groups that every teacher scored")
    parser.add_argument("--dev", metavar="FORMAT:PATH", required=True)
    parser.add_argument("--test", metavar="FORMAT:PATH", action="append", required=True, help="may be repeated")
    parser.add_argument("--sample", type=int, help="this many questions of each test set, drawn with seed 0")
    parser.add_argument("--teacher", type=Path, action="append", required=True, help="score caches; the best one first")
    parser.add_argument("--hydra", type=Path, action="append", default=[], help="score caches of one kind of teacher")
    parser.add_argument("--seeds", type=_seeds, default=(1,), help="such as 1,2,3")
    parser.add_argument("--only", action="append", help="train only this strategy; may be repeated")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--precision", default="fp32", help="precision of the evaluation: fp32 or int8")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, help="training steps (default: the recipe's)")
    parser.add_argument("--questions-per-step", type=int, help="questions of a step (default: the recipe's)")
    return parser


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(int(seed) for seed in text.split(","))


def _folder(run: PlannedRun, seed: int, arguments: argparse.Namespace) -> Path:
    folder: Path = arguments.out / f"{_slug(run)}-{seed}"
    return folder


def _slug(run: PlannedRun) -> str:
    return run.name.replace(",", "").replace(" ", "-")


def _train(run: PlannedRun, seed: int, arguments: argparse.Namespace) -> None:
    folder = _folder(run, seed, arguments)
    if (folder / "checkpoint").is_dir():
        return
    changes = {"steps": arguments.steps, "questions-per-step": arguments.questions_per_step}
    _verb(
        "distil",
        *("--recipe", arguments.recipe, "--base", arguments.base, "--groups", arguments.groups, "--dev", arguments.dev),
        *("--strategy", run.strategy, "--heads", run.heads, "--seed", seed),
        *("--out", folder, "--device", arguments.device),
        *(part for teacher in run.teachers for part in ("--teacher", teacher)),
        *(part for name, value in changes.items() if value is not None for part in (f"--{name}", value)),
    )


def _evaluate(folder: Path, test: str, arguments: argparse.Namespace) -> None:
    out = _records_file(folder, test)
    if not out.is_file():
        sample = () if arguments.sample is None else ("--sample", arguments.sample)
        form = ("--checkpoint", folder / "checkpoint", "--precision", arguments.precision)
        _verb("evaluate", *form, "--data", test, *sample, "--per-question", out)


def _records_file(folder: Path, test: str) -> Path:
    form, _, path = test.partition(":")
    return folder / f"{form}-{Path(path).name.split('.')[0]}.jsonl"


def _report(arguments: argparse.Namespace) -> None:
    """Write the table of all finished runs, not only of those that this call added."""
    sections = []
    every = plan([str(path) for path in arguments.teacher], [str(path) for path in arguments.hydra])
    for test in arguments.test:
        results: dict[str, dict[int, Records]] = {}
        for run in every:
            for folder in sorted(arguments.out.glob(f"{_slug(run)}-*")):
                seed = folder.name.removeprefix(f"{_slug(run)}-")  # "hard-*" finds hard-one-head too
                if seed.isdecimal() and (path := _records_file(folder, test)).is_file():
                    results.setdefault(run.name, {})[int(seed)] = read_records(path)
        form, _, name = test.partition(":")
        sections.append(f"**{form}:{Path(name).name}**\n\n{strategy_table(results)}\n")
    write_bytes(arguments.out / "table.md", "\n".join(sections).encode())


def _verb(name: str, *arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "cerberank_models", name, *map(str, arguments)], check=True)
