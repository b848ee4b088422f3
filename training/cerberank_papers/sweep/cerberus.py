"""`cerberank train sweep cerberus`: the same student by every strategy of table 3, or in the shapes of table 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cerberank_models.checkpoint.bound import Bound
from cerberank_models.commands.options import BackendOptions, Device, Windows, check_device, chosen_device
from cerberank_models.commands.values import Count, DataSpec, Integers, Names, data_help
from cerberank_models.output import UsageError
from cerberank_papers.sweep.grid import HEADER, Alphas, Rates, Sizes, Taus, Warmups, finished_points
from cerberank_papers.sweep.sweep_runs import (
    Evaluation,
    TableOptions,
    contents,
    fill_table,
    is_finished,
    ranker_evaluation,
    result_of,
    run_command,
    settings_of,
    trained,
    write_table,
)
from cerberank_training.commands.presets import flag_of, student_settings
from cerberank_training.learning.strategies import Choice, strategy_of
from cerberank_training.runs.settings import RECIPE_HELP, DevQuestions

GRID = ("alpha", "tau", "learning_rate", "examples_per_step", "warmup")
"""The settings that a grid can choose for each row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """The run for one row of the table."""

    name: str
    heads: int
    teachers: tuple[str, ...]
    """The teachers' score caches, in the order of the heads."""
    body_layers: int | None = None
    """Layers of the body (default: the recipe's)."""
    strategy: Choice | None = None

    @property
    def names(self) -> tuple[str, str]:
        """The name of the row, and what the rows of all bodies have in common."""
        return self.name, self.name.removesuffix(f"-b{self.body_layers}")


def plan(teachers: Sequence[str], hydra: Sequence[str], body_layers: Sequence[int] = ()) -> tuple[PlannedRun, ...]:
    """The runs for `teachers` of different kinds, the first for the single teacher, and for `hydra` of one kind.

    With `body_layers` there are all of them for each body, such as `cerberus-b11`.

    >>> [run.name for run in plan(["a", "b", "c"], [])]
    ['hard-one-head', 'hard', 'single', 'kd_sum', 'kd_rr', 'single_all_heads', 'cerberus']
    """
    one, every, heads = (teachers[0],), tuple(teachers), len(teachers)
    runs = [
        PlannedRun(name="hard-one-head", heads=1, teachers=()),
        PlannedRun(name="hard", heads=heads, teachers=()),
        PlannedRun(name="single", heads=1, teachers=one),
        PlannedRun(name="kd_sum", strategy="kd_sum", heads=1, teachers=every),
        PlannedRun(name="kd_rr", strategy="kd_rr", heads=1, teachers=every),
        PlannedRun(name="single_all_heads", heads=heads, teachers=one),
    ]
    if hydra:
        runs.append(PlannedRun(name="hydra", heads=len(hydra), teachers=tuple(hydra)))
    runs.append(PlannedRun(name="cerberus", heads=heads, teachers=every))
    shaped = [replace(run, name=f"{run.name}-b{size}", body_layers=size) for size in body_layers for run in runs]
    return tuple(shaped or runs)


def chosen(runs: Sequence[PlannedRun], names: Sequence[str]) -> list[PlannedRun]:
    """The runs with one of the `names`; without names, all runs.

    Raises ValueError, which lists the runs, for a name that no run has.
    """
    for name in names:
        if not any(name in run.names for run in runs):
            raise ValueError(f"there is no run {name!r}; the runs are {'; '.join(run.name for run in runs)}")
    return [run for run in runs if not names or set(run.names) & set(names)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CerberusOptions:
    """The options of `train sweep cerberus`."""

    recipe: Annotated[str, Parameter(help=RECIPE_HELP)]
    base: str
    """Path or hub id of an encoder, or a checkpoint to train further."""
    train: Annotated[DataSpec | None, Parameter(help=data_help("Questions that every teacher scored"))] = None
    groups: DataSpec | None = None
    """Groups that every teacher scored, as FORMAT:PATH, instead of --train."""
    dev: DataSpec
    """Questions to choose weights by, as FORMAT:PATH."""
    dev_questions: DevQuestions = None
    windows: Windows = None
    teacher: tuple[Path, ...]
    """Score cache of a teacher, written by `data score --teacher MODEL`; repeat for several. Rows with one teacher have
    the first, in the paper ELECTRA-large."""
    hydra: tuple[Path, ...] = ()
    """Score cache of a teacher for the row hydra, in the paper three ELECTRA-base with other seeds; repeat for
    several."""
    body_layers: Integers = ()
    """Layers of the body, such as 11,10,8,6 of table 4; each gives rows of its own (default: the recipe's)."""
    rows: Names = ()
    """Rows to train, separated by commas (default: all)."""
    precision: str = "fp32"
    """Precision of the evaluation: fp32 or int8."""
    device: Device = "auto"
    steps: Count | None = None
    """Training steps (default: the recipe's)."""
    alpha: Alphas = ()
    """Weights of the labels to choose from for each row on dev (default: the recipe's)."""
    tau: Taus = ()
    """Temperatures to choose from for each row on dev (default: the recipe's)."""
    learning_rate: Rates = ()
    """Learning rates to choose from for each row on dev (default: the recipe's)."""
    examples_per_step: Sizes = ()
    """Groups or pairs of a step to choose from for each row on dev (default: the recipe's)."""
    warmup: Warmups = ()
    """Warm-ups to choose from for each row on dev (default: the recipe's)."""
    table: TableOptions


def cerberus(*, options: CerberusOptions) -> Path:
    """Train the same student by every strategy, or in several shapes, and compare (CERBERUS tables 3 and 4).

    Every run is a `train distil` in `OUT/<row>-<seed>`, and an `evaluate` of each test set, in
    `OUT/systems/<row>/<seed>`. Finished runs are not repeated: a killed command continues when it is repeated, and
    more seeds can be added later. With several values of --alpha, --tau, --learning-rate, --examples-per-step or
    --warmup, a `train sweep grid` in `OUT/grid-<row>` chooses the values of each row by MAP on dev, with the first
    seed. With --body-layers, each strategy has a row for each of these shapes; the heads have the base's other layers.
    Writes OUT/table.md, in the form of `results table`, with the first row cerberus as the baseline. For example:

        cerberank train sweep cerberus --recipe cerberus/wikiqa --base bases/electra-asnq
          --train wikiqa:WikiQA-train.tsv --dev wikiqa:WikiQA-dev.tsv --test wikiqa:WikiQA-test.tsv
          --teacher scores/electra --teacher scores/albert --teacher scores/roberta
          --seeds 1,2,3 --out runs/table

    Args:
        options: Options.
    """
    if (options.train is None) == (options.groups is None):
        raise UsageError("Give --train or --groups.")
    options = replace(options, device=chosen_device(options.device))
    # Everything that can be refused is refused before anything is written.
    student_settings(options.recipe)
    table, (teachers, hydra) = options.table, ([*map(str, paths)] for paths in (options.teacher, options.hydra))
    every = plan(teachers, hydra, list(dict.fromkeys(options.body_layers)))
    runs = chosen(every, options.rows)
    for run in runs:
        strategy_of(run.strategy, heads=run.heads, teachers=len(run.teachers))
    check_device(options.device)
    form = BackendOptions(device=options.device, precision=options.precision).chosen()

    # The folder goes on with the same settings and content alone.
    data = {name: getattr(options, name) for name in ("train", "groups", "dev")}
    shared = {name: value for name, value in settings_of(options).items() if name not in GRID or value}
    Bound(table.out, shared | contents(options.base, data, [*options.teacher, *options.hydra])).begin()

    # ONNX forms are written where they are evaluated alone, because each takes long to export.
    forms = ("--forms", options.precision if form.kind == "onnx" else "none")

    def train(run: PlannedRun, seed: int) -> Evaluation:
        folder = table.out / f"{run.name}-{seed}"
        if not is_finished(folder, "distil"):
            trained(folder, "distil", *_training(run, options), *_tuned(run, options), *forms, "--seed", seed)
        source = ("--checkpoint", result_of(folder, "distil"), "--precision", options.precision)
        return ranker_evaluation(table, *source, "--device", options.device)

    rows = {run.name: partial(train, run) for run in runs}
    return fill_table(table, rows, report=partial(_report, every, table))


def _training(run: PlannedRun, options: CerberusOptions) -> list[object]:
    """The options of `train distil` that all runs of a row share."""
    names = ("recipe", "base", "train", "groups", "dev", "dev_questions", "windows", "steps", "device")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    words = [part for name, value in given.items() for part in (flag_of(name), value)]
    words += ["--heads", run.heads] + (["--strategy", run.strategy] if run.strategy else [])
    words += [] if run.body_layers is None else ["--body-layers", run.body_layers]
    return words + [part for teacher in run.teachers for part in ("--teacher", teacher)]


def _tuned(run: PlannedRun, options: CerberusOptions) -> list[object]:
    """The options of the row that the call gives, or that a grid chooses where it gives several values of one."""
    values = {name: value for name in GRID if (value := getattr(options, name))}
    if all(len(value) == 1 for value in values.values()):
        return [part for name, (value,) in values.items() for part in (flag_of(name), value)]
    recipe, folder = student_settings(options.recipe), _grid(run.name, options.table)
    own = {"alpha": recipe.objective.alpha[:1], "tau": recipe.objective.tau[:1]}
    own["learning_rate"] = (recipe.train.learning_rate,)
    lists = [part for name, value in (own | values).items() for part in (flag_of(name), ",".join(map(str, value)))]
    seed = options.table.seeds[0]
    run_command("train sweep grid", *_training(run, options), "--seed", seed, *lists, "--out", folder)
    return [*finished_points(folder)[0][0].options()]


def _grid(row: str, table: TableOptions) -> Path:
    return table.out / f"grid-{row}"


def _report(every: Sequence[PlannedRun], table: TableOptions) -> None:
    """Write the table, with the settings that grids have chosen."""
    rows = [run.name for run in every]
    tuned = {row: points[0] for row in rows if (points := finished_points(_grid(row, table)))}
    lines = []
    for row, (best, value) in tuned.items():
        settings = ", ".join(f"{HEADER[each]} {number:g}" for each, number in best.values.items())
        lines.append(f"- {row}: {settings}, dev MAP {value:.2f}")
    more = ["\n".join(["Chosen on dev:\n", *lines])] if lines else []
    baseline = next(run.name for run in every if "cerberus" in run.names)
    write_table(table, rows, more, measures="P@1 AP RR", baseline=baseline)
