"""`cerberank train sweep grid`: every combination of alpha, tau and learning rate, chosen by dev MAP."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_models.checkpoint.bound import Bound
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.values import arguments_of, listed
from cerberank_models.output import say
from cerberank_training.commands.distil import DistilOptions, distil
from cerberank_training.commands.presets import read_recipe
from cerberank_training.commands.recipe_options import changed_recipe
from cerberank_training.commands.run_options import note_of
from cerberank_training.commands.sweep.runs import Rest, contents, run_command
from cerberank_training.evaluation.report import table
from cerberank_training.runs.card import dev_map

FREE = ("out", "device", "name", "version", "terms", "no_export")
"""Options of `train distil` that a grid may be continued with other values of."""
FOLDER = re.compile("alpha-([0-9.e+-]+)-tau-([0-9.e+-]+)-rate-([0-9.e+-]+)")
"""Folders of the grid's runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One combination of the grid."""

    alpha: float
    tau: float
    learning_rate: float

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"alpha-{self.alpha}-tau-{self.tau}-rate-{self.learning_rate}"

    @classmethod
    def named(cls, name: str) -> Point | None:
        """The combination whose folder has this name; None for another folder."""
        match = FOLDER.fullmatch(name)
        return match and cls(alpha=float(match[1]), tau=float(match[2]), learning_rate=float(match[3]))

    def options(self, training: Sequence[str], folder: Path) -> list[str]:
        """The arguments of the combination's `distil`."""
        own = ("--alpha", self.alpha, "--tau", self.tau, "--learning-rate", self.learning_rate, "--out", folder)
        return [*training, *map(str, own)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """The options of the grid itself; the default values are the paper's."""

    alpha: Annotated[tuple[float, ...], listed(float, "0,0.1", within=Number(gte=0, lte=1))] = (0.0, 0.1, 0.5, 0.9)
    """Weights of the labels."""
    tau: Annotated[tuple[float, ...], listed(float, "1,3", within=Number(gt=0, lt=math.inf))] = (1.0, 3.0, 5.0)
    """Temperatures."""
    learning_rate: Annotated[tuple[float, ...], listed(float, "1e-6,1e-5", within=Number(gt=0, lt=math.inf))] = (
        1e-6,
        1e-5,
    )
    """Highest learning rates."""
    out: Path
    """Folder of all runs and of the table."""


def grid(*training: Rest, options: GridOptions) -> None:
    """Train a student with every combination of alpha, tau and learning rate, and choose by dev MAP.

    This is the paper's grid (CERBERUS section 3.2, appendix D). Every combination is a `train distil` in
    OUT/alpha-A-tau-T-rate-R; all other options are those of `train distil`, the same for all. A killed grid goes on
    when the command is repeated, and values can be added later. Writes OUT/table.md. Runs keep their weights without
    forms for ONNX, unless --precisions is given. Without teachers only the rates are compared. For example:

        cerberank train sweep grid --recipe electra-base-b11-3h1 --base BASE
          --groups jsonl:groups.jsonl.gz --dev jsonl:dev.jsonl --alpha 0,0.1
          --teacher scores/albert --teacher scores/roberta --teacher scores/electra
          --out runs/grid

    Args:
        training: Options of `train distil`.
        options: Options.
    """
    values = product(*(dict.fromkeys(each) for each in (options.alpha, options.tau, options.learning_rate)))
    points = [Point(alpha=alpha, tau=tau, learning_rate=rate) for alpha, tau, rate in values]
    # Read here as well, so that an error shows before the first run, and that defaults are recorded.
    runs = [_options_of_run(point.options(training, options.out / point.name)) for point in points]
    first = runs[0]
    recipes = [
        changed_recipe(read_recipe(run.recipe).recipe, run.changes, sampled=run.groups is not None) for run in runs
    ]
    objective = recipes[0].objective
    if objective.strategy == "hard" and objective.exits == "labels":
        rates = dict.fromkeys(options.learning_rate)
        points = [Point(alpha=1.0, tau=1.0, learning_rate=rate) for rate in rates]
        note_of("sweep grid", "labels alone have no alpha and no tau: the rates are compared")
    data = {name: getattr(first, name) for name in ("train", "groups", "dev")}
    Bound(options.out, _recorded(first) | contents(first.base, data, first.teacher)).begin()
    for point in points:
        folder = options.out / point.name
        if not (folder / "checkpoint").is_dir():
            forms = ("--no-export",) if first.precisions is None and not first.no_export else ()
            run_command("train distil", *forms, *point.options(training, folder))
        _report(options.out, training)
    say((options.out / "table.md").read_text(encoding="utf-8"))


def _options_of_run(words: Sequence[str]) -> DistilOptions:
    options: DistilOptions = arguments_of(distil, words)["options"]
    return options


def _recorded(options: DistilOptions) -> dict[str, Any]:
    """The settings that all runs of a grid share."""
    values = asdict(options)
    settings = values.pop("changes")
    for part, name in (("objective", "alpha"), ("objective", "tau"), ("train", "learning_rate")):
        del settings[part][name]
    return {name: value for name, value in values.items() if name not in FREE} | {"settings": settings}


def finished_points(out: Path) -> list[tuple[Point, float]]:
    """The finished runs of the grid, the best on dev first; of equals, the one that was finished first."""
    found = [(point, path) for path in out.glob("*/checkpoint") if (point := Point.named(path.parent.name))]
    found.sort(key=lambda run: (run[1].stat().st_mtime_ns, run[1].parent.name))
    rows = [(point, dev_map(read_checkpoint(path).manifest.metrics)) for point, path in found]
    return sorted(rows, key=lambda row: -row[1])


def _report(out: Path, training: Sequence[str]) -> None:
    """Write the table of all finished runs, and the command of the best."""
    finished = finished_points(out)
    header = ["alpha", "tau", "learning rate", "dev MAP", "folder"]
    rows = [
        [f"{point.alpha:g}", f"{point.tau:g}", f"{point.learning_rate:g}", f"{value:.2f}", point.name]
        for point, value in finished
    ]
    command = shlex.join(["cerberank", "train", "distil", *finished[0][0].options(training, out / "best")])
    text = f"{table(header, rows)}\n\nThe best, chosen on dev alone, again:\n\n```sh\n{command}\n```\n"
    write_bytes(out / "table.md", text.encode())
