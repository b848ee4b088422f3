"""`train grid`: train a student with every combination of alpha, tau and learning rate, and choose by dev MAP.

The paper's grid (CERBERUS section 4). Every combination is a `cerberank train distil` in a process of its own, in
OUT/alpha-A-tau-T-rate-R; other options are those of `distil`, the same for all. A killed grid goes on when the same
command is repeated, and values can be added later. Writes OUT/table.md. Runs keep their weights without forms for ONNX,
unless --precisions is given.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_models.checkpoint.bound import Bound
from cerberank_models.checkpoint.errors import CheckpointError
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_training.commands import distil
from cerberank_training.commands.recipe_files import read_recipe
from cerberank_training.commands.recipe_options import changed_recipe, numbers
from cerberank_training.commands.strategies.runs import VerbError, contents, run_verb
from cerberank_training.evaluation.report import table
from cerberank_training.runs.card import dev_map

OWN = ("alpha", "tau", "learning_rate", "out")
"""The options of `distil` that each combination has for itself."""
FREE = ("device", "name", "version", "terms")
"""Those that a grid may be continued with other values of."""
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

    def options(self, training: list[str], folder: Path) -> list[str]:
        """The arguments of the combination's `distil`."""
        own = ("--alpha", self.alpha, "--tau", self.tau, "--learning-rate", self.learning_rate, "--out", folder)
        return [*training, *map(str, own)]


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments, training = _parser().parse_known_args(argv)
    values = product(*(dict.fromkeys(each) for each in (arguments.alpha, arguments.tau, arguments.learning_rate)))
    points = [Point(alpha=alpha, tau=tau, learning_rate=rate) for alpha, tau, rate in values]
    # Parsed here as well, so that an error shows before the first run, and that defaults are recorded.
    parsed = [distil.parser().parse_args(point.options(training, arguments.out / point.name)) for point in points]
    try:
        recipes = [changed_recipe(read_recipe(each.recipe).recipe, each) for each in parsed]
        objective = recipes[0].objective
        if objective.strategy == "hard" and objective.exits == "labels":
            raise ValueError("--strategy is hard: without teachers there is no alpha and no tau to choose")
        first = parsed[0]
        recorded = {name: value for name, value in vars(first).items() if name not in (*OWN, *FREE)}
        data = {name: getattr(first, name) for name in ("train", "groups", "dev")}
        Bound(arguments.out, recorded | contents(first.base, data, first.teacher)).begin()
        for point in points:
            folder = arguments.out / point.name
            if not (folder / "checkpoint").is_dir():
                # Forms are for the chosen one; `--no-export` is the same, and argparse takes one of the two.
                forms = ("--precisions", "") if first.precisions is None else ()
                run_verb("train distil", *forms, *point.options(training, folder))
            _report(arguments.out, training)
    except (CheckpointError, VerbError, ValueError, OSError) as error:
        print(f"cerberank train grid: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print((arguments.out / "table.md").read_text(encoding="utf-8"))  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank train grid", description=__doc__, allow_abbrev=False)
    parser.add_argument("--alpha", type=numbers, default=(0.0, 0.1, 0.5, 0.9), help="such as 0,.1,.5,.9, the default")
    parser.add_argument("--tau", type=numbers, default=(1.0, 3.0, 5.0), help="such as 1,3,5, the default")
    parser.add_argument("--learning-rate", type=numbers, default=(1e-6, 1e-5), help="such as 1e-6,1e-5, the default")
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs and of the table")
    return parser


def _finished(out: Path) -> list[tuple[Point, float]]:
    """The finished runs of the grid, the best on dev first; of equals, the one that was finished first."""
    found = [(point, path) for path in out.glob("*/checkpoint") if (point := Point.named(path.parent.name))]
    found.sort(key=lambda run: (run[1].stat().st_mtime_ns, run[1].parent.name))
    rows = [(point, dev_map(read_checkpoint(path).manifest.metrics)) for point, path in found]
    return sorted(rows, key=lambda row: -row[1])


def _report(out: Path, training: list[str]) -> None:
    """Write the table of all finished runs, and the command of the best."""
    finished = _finished(out)
    header = ["alpha", "tau", "learning rate", "dev MAP", "folder"]
    rows = [
        [f"{point.alpha:g}", f"{point.tau:g}", f"{point.learning_rate:g}", f"{value:.2f}", point.name]
        for point, value in finished
    ]
    command = shlex.join(["cerberank", "train", "distil", *finished[0][0].options(training, out / "best")])
    text = f"{table(header, rows)}\n\nThe best, chosen on dev alone, again:\n\n```sh\n{command}\n```\n"
    write_bytes(out / "table.md", text.encode())
