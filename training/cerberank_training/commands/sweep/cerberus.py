"""`cerberank train sweep cerberus`: the same student by every strategy of CERBERUS's table 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_models.checkpoint.bound import Bound
from cerberank_models.commands.options import check_device, chosen_device
from cerberank_models.commands.values import Count
from cerberank_models.output import say
from cerberank_training.commands.presets import read_recipe, recipe_help
from cerberank_training.commands.sweep.runs import TableOptions, contents, evaluate_run, finished, run_command
from cerberank_training.evaluation.strategy_table import PlannedRun, chosen, plan, strategy_table
from cerberank_training.learning.strategies import check_strategy

SHARED = ("recipe", "base", "groups", "dev", "teacher", "hydra", "precision", "steps", "questions_per_step")
"""The options with which a table that was begun must go on; more tests, seeds and strategies may be added."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CerberusOptions:
    """The options of `train sweep cerberus`."""

    recipe: Annotated[str, Parameter(help=recipe_help())]
    base: str
    """Path or hub id of an encoder, or a checkpoint to train further."""
    groups: str
    """Groups that every teacher scored, as FORMAT:PATH."""
    dev: str
    """Questions to choose weights by, as FORMAT:PATH."""
    teacher: tuple[Path, ...]
    """Score cache of a teacher, the best one first; repeat for several."""
    hydra: tuple[Path, ...] = ()
    """Score cache of one kind of teacher, for the row hydra; repeat for several."""
    only: tuple[str, ...] = ()
    """Row or strategy to train alone; repeat for several."""
    precision: str = "fp32"
    """Precision of the evaluation: fp32 or int8."""
    device: str = "auto"
    """cpu, cuda, or cuda:N (default: a GPU if there is one)."""
    steps: Count | None = None
    """Training steps (default: the recipe's)."""
    questions_per_step: Count | None = None
    """Questions of a step (default: the recipe's)."""
    table: TableOptions


def cerberus(*, options: CerberusOptions) -> None:
    """Train the same student by every strategy and compare (CERBERUS table 3).

    Every run is a `train distil` and an `evaluate`, in `OUT/<strategy>-<seed>`. Finished runs are not repeated, so that
    a killed call goes on when it is repeated, and more seeds can be added later. Writes OUT/table.md.

    Args:
        options: Options.
    """
    options = replace(options, device=chosen_device(options.device))
    read_recipe(options.recipe)  # an unknown one is refused before anything is written
    every, table = plan([str(path) for path in options.teacher], [str(path) for path in options.hydra]), options.table
    runs = chosen(every, options.only)
    for run in runs:
        check_strategy(run.strategy, heads=run.heads, teachers=len(run.teachers))
    check_device(options.device)
    data = {name: getattr(options, name) for name in ("groups", "dev")}
    shared = {name: getattr(options, name) for name in SHARED} | {"sample": table.sample}
    Bound(table.out, shared | contents(options.base, data, [*options.teacher, *options.hydra])).begin()
    for seed in dict.fromkeys(table.seeds):
        for run in runs:
            folder = table.out / f"{_slug(run)}-{seed}"
            _train(run, seed, folder, options)
            source = ("--checkpoint", folder / "checkpoint", "--precision", options.precision)
            for test in table.test:
                evaluate_run(folder, test, source=source, sample=table.sample)
            _report(every, table)
    say((table.out / "table.md").read_text(encoding="utf-8"))


def _slug(run: PlannedRun) -> str:
    return run.name.replace(",", "").replace(" ", "-")


def _train(run: PlannedRun, seed: int, folder: Path, options: CerberusOptions) -> None:
    if (folder / "checkpoint").is_dir():
        return
    changes = {"steps": options.steps, "questions-per-step": options.questions_per_step}
    run_command(
        "train distil",
        *("--recipe", options.recipe, "--base", options.base, "--groups", options.groups, "--dev", options.dev),
        *("--strategy", run.strategy, "--heads", run.heads, "--seed", seed),
        *("--out", folder, "--device", options.device),
        *("--precisions", options.precision),  # what is evaluated, because each form takes long to export
        *(part for teacher in run.teachers for part in ("--teacher", teacher)),
        *(part for name, value in changes.items() if value is not None for part in (f"--{name}", value)),
    )


def _report(every: Sequence[PlannedRun], table: TableOptions) -> None:
    """Write the table of all finished runs, not only of those that this call added."""
    sections = []
    for test in table.test:
        results = {run.name: finished(table.out, _slug(run), test) for run in every}
        form, _, name = test.partition(":")
        shown = strategy_table({name: by_seed for name, by_seed in results.items() if by_seed})
        sections.append(f"**{form}:{Path(name).name}**\n\n{shown}\n")
    write_bytes(table.out / "table.md", "\n".join(sections).encode())
