"""`cerberank train strategies`: train the same student by every strategy of a paper and compare (CERBERUS table 3).

Every run is a `train distil` and an `evaluate` in processes of their own, in OUT/<strategy>-<seed>. Finished runs
are not repeated, so a killed call resumes when it is repeated, and more seeds can be added later. Writes OUT/table.md.
TRMD's table has its own options: `cerberank train strategies --paper trmd --help`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_models.checkpoint.bound import Bound
from cerberank_training.commands.recipe_files import add_recipe_option, read_recipe
from cerberank_training.commands.strategies import trmd_systems
from cerberank_training.commands.strategies.runs import (
    VerbError,
    add_table_options,
    contents,
    evaluate_run,
    finished,
    run_verb,
    seeds_of,
)
from cerberank_training.evaluation.strategy_table import PlannedRun, chosen, plan, strategy_table
from cerberank_training.learning.strategies import check_strategy
from cerberank_training.runs.place import check_device

SHARED = ("recipe", "base", "groups", "dev", "sample", "teacher", "hydra", "precision", "steps", "questions_per_step")
"""The options with which a table that was begun must go on; more tests, seeds and strategies may be added."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    paper = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    paper.add_argument("--paper", choices=("cerberus", "trmd"), default="cerberus")
    chosen, rest = paper.parse_known_args(argv)
    return _cerberus(rest) if chosen.paper == "cerberus" else trmd_systems.main(rest)


def _cerberus(argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    try:
        read_recipe(arguments.recipe)  # an unknown one is refused before anything is written
        every = plan([str(path) for path in arguments.teacher], [str(path) for path in arguments.hydra])
        runs = chosen(every, arguments.only or ())
        for run in runs:
            check_strategy(run.strategy, heads=run.heads, teachers=len(run.teachers))
        check_device(arguments.device)
        data = {name: getattr(arguments, name) for name in ("groups", "dev")}
        read = contents(arguments.base, data, [*arguments.teacher, *arguments.hydra])
        Bound(arguments.out, {name: getattr(arguments, name) for name in SHARED} | read).begin()
        for seed in seeds_of(arguments):
            for run in runs:
                folder = arguments.out / f"{_slug(run)}-{seed}"
                _train(run, seed, folder, arguments)
                source = ("--checkpoint", folder / "checkpoint", "--precision", arguments.precision)
                for test in arguments.test:
                    evaluate_run(folder, test, source=source, sample=arguments.sample)
                _report(arguments)
    except (VerbError, ValueError, OSError) as error:
        print(f"cerberank train strategies: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print((arguments.out / "table.md").read_text(encoding="utf-8"))  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank train strategies", description=__doc__)
    parser.add_argument("--paper", choices=("cerberus", "trmd"), default="cerberus", help="whose table")
    add_recipe_option(parser)
    parser.add_argument("--base", required=True)
    parser.add_argument("--groups", metavar="FORMAT:PATH", required=True, help="the groups that every teacher scored")
    parser.add_argument("--dev", metavar="FORMAT:PATH", required=True)
    add_table_options(parser)
    parser.add_argument("--teacher", type=Path, action="append", required=True, help="score caches; the best one first")
    parser.add_argument("--hydra", type=Path, action="append", default=[], help="score caches of one kind of teacher")
    parser.add_argument("--only", action="append", help="train only this row or strategy; may be repeated")
    parser.add_argument("--precision", default="fp32", help="precision of the evaluation: fp32 or int8")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, help="training steps (default: the recipe's)")
    parser.add_argument("--questions-per-step", type=int, help="questions of a step (default: the recipe's)")
    return parser


def _slug(run: PlannedRun) -> str:
    return run.name.replace(",", "").replace(" ", "-")


def _train(run: PlannedRun, seed: int, folder: Path, arguments: argparse.Namespace) -> None:
    if (folder / "checkpoint").is_dir():
        return
    changes = {"steps": arguments.steps, "questions-per-step": arguments.questions_per_step}
    run_verb(
        "train distil",
        *("--recipe", arguments.recipe, "--base", arguments.base, "--groups", arguments.groups, "--dev", arguments.dev),
        *("--strategy", run.strategy, "--heads", run.heads, "--seed", seed),
        *("--out", folder, "--device", arguments.device),
        *("--precisions", arguments.precision),  # what is evaluated, because each form takes long to export
        *(part for teacher in run.teachers for part in ("--teacher", teacher)),
        *(part for name, value in changes.items() if value is not None for part in (f"--{name}", value)),
    )


def _report(arguments: argparse.Namespace) -> None:
    """Write the table of all finished runs, not only of those that this call added."""
    sections = []
    every = plan([str(path) for path in arguments.teacher], [str(path) for path in arguments.hydra])
    for test in arguments.test:
        results = {run.name: finished(arguments.out, _slug(run), test) for run in every}
        form, _, name = test.partition(":")
        shown = strategy_table({name: by_seed for name, by_seed in results.items() if by_seed})
        sections.append(f"**{form}:{Path(name).name}**\n\n{shown}\n")
    write_bytes(arguments.out / "table.md", "\n".join(sections).encode())
