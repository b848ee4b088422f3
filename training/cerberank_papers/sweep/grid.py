"""`cerberank train sweep grid`: every combination of a few settings of `distil` or `teach`, chosen by dev MAP."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_models.checkpoint.bound import Bound
from cerberank_models.commands.values import listed
from cerberank_models.output import UsageError
from cerberank_papers.sweep.sweep_runs import (
    TABLE,
    Rest,
    contents,
    is_finished,
    job_of,
    recorded,
    result_of,
    say_table,
    trained,
)
from cerberank_training.commands.presets import flag_of
from cerberank_training.evaluation.report import table
from cerberank_training.learning.settings import DistilOptions, TeachOptions
from cerberank_training.runs.record import note_of, read_record
from cerberank_training.teachers.scoring.model_scores import is_model

NUMBER = r"([0-9.e+-]+)"
FOLDER = re.compile(f"(?:alpha-{NUMBER}-tau-{NUMBER}-)?rate-{NUMBER}(?:-batch-([0-9]+))?(?:-warmup-{NUMBER})?")
"""Folders of the grid's runs."""
HEADER = {
    "alpha": "alpha",
    "tau": "tau",
    "learning_rate": "learning rate",
    "examples_per_step": "questions or pairs a step",
    "warmup": "warm-up",
}
"""The settings of a combination and what the table calls them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One combination of the grid; None is the recipe's."""

    alpha: float | None = None
    tau: float | None = None
    learning_rate: float
    examples_per_step: int | None = None
    warmup: float | None = None

    @property
    def values(self) -> dict[str, float]:
        """The settings of the combination."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}

    @property
    def name(self) -> str:
        """The name of its folder."""
        short = {"learning_rate": "rate", "examples_per_step": "batch"}
        return "-".join(f"{short.get(name, name)}-{value}" for name, value in self.values.items())

    @classmethod
    def named(cls, name: str) -> Point | None:
        """The combination whose folder has this name; None for another folder."""
        if (match := FOLDER.fullmatch(name)) is None:
            return None
        alpha, tau, rate, size, warmup = match.groups()
        return cls(
            alpha=float(alpha) if alpha else None,
            tau=float(tau) if tau else None,
            learning_rate=float(rate),
            examples_per_step=int(size) if size else None,
            warmup=float(warmup) if warmup else None,
        )

    def options(self) -> list[str]:
        """The settings as options of the combination's run."""
        return [part for name, value in self.values.items() for part in (flag_of(name), str(value))]


Alphas = Annotated[tuple[float, ...], listed(float, "0,0.1", within=Number(gte=0, lte=1))]
Taus = Annotated[tuple[float, ...], listed(float, "1,3", within=Number(gt=0, lt=math.inf))]
Rates = Annotated[tuple[float, ...], listed(float, "1e-6,1e-5", within=Number(gt=0, lt=math.inf))]
Sizes = Annotated[tuple[int, ...], listed(int, "8,16", within=Number(gte=1))]
Warmups = Annotated[tuple[float, ...], listed(float, "0.025,0.1", within=Number(gte=0, lt=math.inf))]
ALPHAS, TAUS = (0.0, 0.1, 0.5, 0.9), (1.0, 3.0, 5.0)
"""The paper's."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """The options of the grid itself; the defaults of alpha, tau and learning rate are the paper's."""

    verb: Literal["distil", "teach"] = "distil"
    """Command to run for every combination."""
    alpha: Alphas = ()
    """Weights of the labels, only for distil (default: 0,0.1,0.5,0.9)."""
    tau: Taus = ()
    """Temperatures, only for distil (default: 1,3,5)."""
    learning_rate: Rates = (1e-6, 1e-5)
    """Highest learning rates."""
    examples_per_step: Sizes = ()
    """Groups or pairs of a step, such as the paper's 8,16,24,32,64 (default: the recipe's)."""
    warmup: Warmups = ()
    """Warm-ups as shares of the steps; the paper's are between 0.025 and 0.1 (default: the recipe's)."""
    out: Path
    """Folder of all runs and of the table."""


def grid(*training: Rest, options: GridOptions) -> Path:
    """Train with every combination of alpha, tau, learning rate, batch and warm-up, and choose by dev MAP.

    The default grid has the paper's values of alpha, tau and learning rate (CERBERUS section 3.2, appendix D); batches
    and warm-ups are the recipe's unless they are given. Every combination is a run of `train distil`, or
    with --verb teach of `train teach`, in a folder of OUT that is named after its settings. All other options are
    passed to that command, the same for all runs. A killed grid continues when the command is repeated, and values can
    be added later. Writes OUT/table.md. Students are written as weights without ONNX forms, unless --forms is
    given. Runs on labels alone, of students or teachers, have neither alpha nor tau. For example:

        cerberank train sweep grid --recipe cerberus/wikiqa --base bases/electra-asnq
          --train wikiqa:WikiQA-train.tsv --dev wikiqa:WikiQA-dev.tsv
          --teacher scores/electra --teacher scores/albert --teacher scores/roberta
          --out runs/grid

    Args:
        training: Options of `train distil`, or of `train teach`.
        options: Options.
    """
    verb = options.verb
    for name in ("alpha", "tau"):
        if verb == "teach" and getattr(options, name):
            raise UsageError(f"--{name} is for --verb distil: a teacher learns from labels alone.")
    # Read here as well, so that an error shows before the first run, and that defaults are recorded.
    shared = job_of(verb, *training, "--out", options.out).options
    for place in shared.teacher if isinstance(shared, DistilOptions) else ():
        if is_model(place):
            raise UsageError(
                f"--teacher {place} is a model: score the data once for all runs, by `cerberank data score`."
            )
    points = _points(shared, options, training)
    forms = []
    if isinstance(shared, DistilOptions) and shared.forms is None:
        forms = ["--forms", "none"]
    data = {name: getattr(shared, name, None) for name in ("train", "groups", "dev")}
    read = contents(shared.base, data, getattr(shared, "teacher", ()))
    Bound(options.out, recorded(shared) | ({} if verb == "distil" else {"verb": verb}) | read).begin()
    for point in points:
        trained(options.out / point.name, verb, *forms, *training, *point.options())
        _report(options.out, verb, training)
    return say_table(options.out)


def _points(shared: DistilOptions | TeachOptions, options: GridOptions, training: Sequence[str]) -> list[Point]:
    """The combinations. Raises UsageError or ValueError, which names the option, for one that cannot be trained."""
    alphas: Sequence[float | None] = options.alpha or ALPHAS
    taus: Sequence[float | None] = options.tau or TAUS
    if isinstance(shared, TeachOptions):
        alphas = taus = (None,)
    elif not shared.teacher and shared.settings.objective.exits == "labels":
        alphas = taus = (1.0,)
        note_of("sweep grid", "labels alone have no alpha and no tau: the other settings are compared")
    points = [
        Point(alpha=alpha, tau=tau, learning_rate=rate, examples_per_step=size, warmup=warmup)
        for alpha in dict.fromkeys(alphas)
        for tau in dict.fromkeys(taus)
        for rate in dict.fromkeys(options.learning_rate)
        for size in dict.fromkeys(options.examples_per_step or (None,))
        for warmup in dict.fromkeys(options.warmup or (None,))
    ]
    for point in points:
        job_of(options.verb, *training, *point.options(), "--out", options.out).check()
    return points


def finished_points(out: Path, verb: str = "distil") -> list[tuple[Point, float]]:
    """The finished runs of the grid, the best on dev first; among equals, the first that was finished."""
    points = [(point, path) for path in out.glob("*") if (point := Point.named(path.name))]
    finished = [(point, path) for point, path in points if is_finished(path, verb)]
    finished.sort(key=lambda run: (result_of(run[1], verb).stat().st_mtime_ns, run[1].name))
    rows = [(point, float(record.results["best"])) for point, path in finished if (record := read_record(path))]
    return sorted(rows, key=lambda row: -row[1])


def _report(out: Path, verb: str, training: Sequence[str]) -> None:
    """Write the table of all finished runs, and the command of the best."""
    finished = finished_points(out, verb)
    names = [name for name in HEADER if any(name in point.values for point, _ in finished)]
    header = [*(HEADER[name] for name in names), "dev MAP", "folder"]
    rows = [
        [*(f"{point.values[name]:g}" if name in point.values else "-" for name in names), f"{value:.2f}", point.name]
        for point, value in finished
    ]
    words = [*training, *finished[0][0].options(), "--out", str(out / "best")]
    command = shlex.join(["cerberank", "train", verb, *words])
    text = f"{table(header, rows)}\n\nThe best, chosen on dev alone, again:\n\n```sh\n{command}\n```\n"
    write_bytes(out / TABLE, text.encode())
