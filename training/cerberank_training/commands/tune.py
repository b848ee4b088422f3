"""`cerberank train tune`: drop schedules for the exits of a checkpoint."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from cyclopts import Parameter

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.commands.options import OWN, Backend, BackendOptions, Ratios, Windows, check_device
from cerberank_models.commands.values import Count, Whole
from cerberank_models.first_stage.rank import open_offline
from cerberank_models.output import say
from cerberank_models.progress import progress
from cerberank_models.windows import AS_SERVED, windowing_of
from cerberank_training.data import read_questions, sampled
from cerberank_training.evaluation.evaluate import score_questions
from cerberank_training.evaluation.plots import tuning_plot
from cerberank_training.evaluation.report import table
from cerberank_training.evaluation.tune import GRID, DevSet, Tuning, TuningBounds
from cerberank_training.evaluation.tune import tune as search
from cerberank_training.runs.dev_set import check_choice

FEW = 20
"""With fewer candidates per question than this, the cost on dev says little about large questions."""
SECTION = "## Drop schedules"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """The options of `train tune`."""

    data: str
    """Dev data as FORMAT:PATH, of the kind that will be ranked."""
    out: Path
    """Checkpoint folder to make."""
    version: str | None = None
    """Version of the new folder (default: the old one's with -tuned)."""
    max_loss: float | None = None
    """Largest loss in points of MAP (default: 1, unless --max-cost is given)."""
    max_cost: float | None = None
    """Largest cost relative to dropping nothing."""
    grid: Ratios = GRID
    """Ratios that are tried at every exit, separated by commas."""
    minimum: Count | None = None
    """Least number of candidates that the schedules leave (default: the checkpoint's)."""
    trials: Whole = 200
    """Trials of Optuna after the grid; 0 skips Optuna."""
    sample: Count | None = None
    """Number of questions with a positive to draw (default: all)."""
    seed: Whole = 0
    """Random seed."""
    windows: Windows = None
    backend: BackendOptions = OWN


def tune(checkpoint: Path, /, *, options: TuneOptions) -> None:
    """Choose a cascade's drop schedule on dev data, and write it into a new checkpoint.

    Every stage scores every question once; then the paper's grid and Optuna search. The default schedule is the
    cheapest that loses at most --max-loss points of MAP, or the most accurate one that costs at most --max-cost. The
    new folder also states a few schedules to choose among under load, and holds the curve as tune.json and tune.png.

    Args:
        checkpoint: Checkpoint folder with exits.
        options: Options.
    """
    if options.out.exists():
        raise FileExistsError(f"{options.out} exists; a checkpoint is never overwritten")
    source = read_checkpoint(checkpoint)
    max_loss = 1.0 if options.max_loss is None and options.max_cost is None else options.max_loss
    bounds = TuningBounds(max_loss=max_loss, max_cost=options.max_cost)
    form, windows = options.backend.chosen(), options.windows or AS_SERVED.combine
    check_device(form.device, form.kind)
    dev = _score(source, form, options)
    tuning = search(dev, bounds, ratios=options.grid, trials=options.trials, seed=options.seed)
    data, size = _name(options.data), fmean(dev.sizes)
    text = (
        f"{schedule_table(tuning)}\n\n"
        f"Chosen on {data} ({len(dev.sizes)} questions, {size:.1f} candidates each, {form.precision}, "
        f"windows: {windows})."
    )
    say(text)
    if size < FEW:
        say(
            "A ratio drops whole candidates, and these questions have few: the default costs "
            f"{tuning.default.dev_cost:.2f} here, {tuning.default.cost:.2f} with many, where its loss is unknown."
        )
    settings = {name: getattr(options, name) for name in ("sample", "seed", "grid", "trials")}
    curve = {
        "data": data,
        **settings,
        "precision": form.precision,
        "windows": windows,
        "minimum": dev.minimum,
        "bounds": asdict(bounds),
        "questions": len(dev.sizes),
        "candidates": sum(dev.sizes),
        **asdict(tuning),
    }
    revise_checkpoint(
        source,
        options.out,
        version=options.version or f"{source.manifest.version}-tuned",
        config=source.config.model_copy(
            update={
                "drop_schedule": tuning.default.schedule,
                "drop_minimum": dev.minimum,
                "tuned_schedules": tuning.menu,
            }
        ),
        card=replace_section(
            (source.path / "README.md").read_text(encoding="utf-8"), f"{text} Expect a little less on other data."
        ),
        files={
            "tune.json": json.dumps(curve, indent=1, allow_nan=False).encode() + b"\n",
            "tune.png": tuning_plot(tuning, title=f"{source.config.name}, {data}"),
        },
    )
    ratios = ",".join(f"{ratio:g}" for ratio in tuning.default.schedule)
    say(f"{options.out}: {source.config.name} drops {ratios} by default")


def _name(data: str) -> str:
    """`FORMAT:FILE` of `FORMAT:PATH`: a model card names no folder of the machine that it was made on."""
    name, _, path = data.partition(":")
    return f"{name}:{Path(path).name}"


def _score(checkpoint: Checkpoint, form: Backend, options: TuneOptions) -> DevSet:
    every = list(read_questions(options.data))
    questions = sampled(every, size=options.sample, seed=options.seed, name="clean")
    check_choice(questions, every, f"--data {options.data}")
    backend = open_backend(checkpoint, **asdict(form))
    first = None if checkpoint.config.first_stage is None else open_offline(checkpoint, **asdict(form))
    windowing = windowing_of(options.windows)
    scored = score_questions(backend, checkpoint.encoder(), questions, first, windowing=windowing)
    return DevSet(
        checkpoint.config.scored_stage_layers,
        progress(scored, total=len(questions), unit="question", desc="score"),
        minimum=options.minimum or checkpoint.config.drop_minimum,
    )


def schedule_table(tuning: Tuning) -> str:
    """A Markdown table with a row per schedule, the default marked."""
    header = ["drop schedule", "cost", "MAP loss ± error", "MAP", "MRR", "P@1", "nDCG@10"]
    rows = [
        [
            ",".join(f"{alpha:g}" for alpha in row.schedule)
            + (" (default)" if row.schedule == tuning.default.schedule else ""),
            f"{row.cost:.2f}",
            f"{row.metrics['map_loss']:.2f} ± {row.metrics.get('map_loss_error', 0.0):.2f}",
            *(f"{row.metrics[name]:.1f}" for name in ("map", "mrr", "p@1", "ndcg@10")),
        ]
        for row in tuning.menu
    ]
    return table(header, rows)


def replace_section(card: str, content: str) -> str:
    r"""The card with the section on drop schedules at its end, or in the place of an earlier one.

    >>> replace_section("# a\n\n## Drop schedules\n\nold\n\n## Limits\n\nb\n", "new")
    '# a\n\n## Drop schedules\n\nnew\n\n## Limits\n\nb\n'
    """
    section = f"{SECTION}\n\n{content}\n"
    before, found, after = card.partition(f"{SECTION}\n")
    if not found:
        return f"{card.rstrip()}\n\n{section}"
    _, following, rest = after.partition("\n## ")
    return f"{before}{section}" + (f"\n## {rest}" if following else "")
