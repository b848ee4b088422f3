"""`cerberank train tune`: drop schedules for the exits of a checkpoint."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.model_card import with_section
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.commands.options import OWN, BackendChoice, BackendOptions, Ratios, Windows, check_device
from cerberank_models.commands.values import Count, DataSpec, Integers, Share, Whole
from cerberank_models.output import UsageError, say
from cerberank_models.progress import progress
from cerberank_models.windows import windowing_of
from cerberank_training.commands.dev_options import data_help
from cerberank_training.data import Question, read_questions, sampled, set_names
from cerberank_training.data.deep_questions import DEPTH_PAIRS, deep_questions
from cerberank_training.evaluation.plots import FIGURE_2, tuning_plot
from cerberank_training.evaluation.question_metrics import TITLES
from cerberank_training.evaluation.report import table
from cerberank_training.evaluation.schedule_search import (
    FEWEST,
    GRID,
    DevSets,
    Measured,
    Tuning,
    TuningBounds,
    frontier,
    ratios_text,
    schedule_table,
)
from cerberank_training.evaluation.schedule_search import tune as search
from cerberank_training.evaluation.variants import AllScores, Scorer, score_depths, score_questions
from cerberank_training.runs.dev_set import check_choice
from cerberank_training.runs.trained_on import check_not_trained_on

FEW = 20
"""With fewer candidates per question than this, the cost on dev says little about large questions."""
SECTION = "Drop schedules"
SHOWN = ("map", "mrr", "p@1", "ndcg@10")
"""Metrics of the table of schedules."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """The options of `train tune`."""

    data: Annotated[
        tuple[DataSpec, ...],
        Parameter(help=data_help("Dev data of the kind that will be ranked, of one set or of several")),
    ]
    out: Path
    """Checkpoint folder to make."""
    version: str | None = None
    """Version of the new folder (default: the old one's with -tuned)."""
    max_loss: float | None = None
    """Largest bound on the loss of any set, in points of MAP (default: 1, unless --max-cost is given)."""
    confidence: Annotated[float, Parameter(validator=Number(gte=0.5, lt=1))] = 0.95
    """Confidence of the bounds on the loss."""
    max_cost: Share | None = None
    """Largest cost, as a share of the layers that run without drops: 0.5 is half of them."""
    grid: Ratios = GRID
    """Drop ratios to try at every exit, separated by commas."""
    minimum: Count | None = None
    """Least number of candidates that a schedule keeps (default: the checkpoint's)."""
    trials: Whole = 200
    """Number of schedules that Optuna tries after the grid; 0 skips Optuna."""
    sample: Count | None = None
    """Number of questions with a positive to draw of each set (default: all)."""
    depths: Integers = ()
    """Numbers of candidates to measure with, separated by commas; missing candidates are taken from other documents."""
    depth_pairs: Count = DEPTH_PAIRS
    """Most pairs at one depth of a set; a depth with more uses fewer questions."""
    seed: Whole = 0
    """Random seed."""
    windows: Windows = None
    backend: BackendOptions = OWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """A checkpoint with a drop schedule."""

    checkpoint: Path
    tuning: Tuning
    """The default schedule, those on the frontier, and all that were tried, with costs and losses."""


def tune(checkpoint: Path, /, *, options: TuneOptions) -> Tuned:
    """Choose a cascade's drop schedule on dev data, and write it into a new checkpoint.

    Every stage scores every question once; then the paper's grid and Optuna search. The default schedule is the
    cheapest that loses at most --max-loss points of MAP on every set and depth, with --confidence, or the most accurate
    one that costs at most --max-cost. Where too few questions show that, nothing is dropped. The new folder also states
    a few schedules to choose among under load, and holds the curve as tune.json and tune.png.

    Args:
        checkpoint: Checkpoint folder with exits.
        options: Options.
    """
    if options.out.exists():
        raise FileExistsError(f"{options.out} exists; a checkpoint is never overwritten")
    if len(set(options.data)) < len(options.data):
        raise UsageError("--data names a data set twice.")
    source = read_checkpoint(checkpoint)
    max_loss = 1.0 if options.max_loss is None and options.max_cost is None else options.max_loss
    bounds = TuningBounds(max_loss=max_loss, max_cost=options.max_cost)
    form, windows = options.backend.chosen(source), options.windows or source.config.encoding.windows
    check_device(form.device, form.kind)
    dev = _score(source, form, options)
    tuning = search(dev, bounds, ratios=options.grid, trials=options.trials, seed=options.seed)
    data, size = set_names(options.data), fmean(dev.sizes)
    text = (
        f"{schedule_table(tuning, {name: TITLES[name] for name in SHOWN})}\n\n"
        f"Chosen on {', '.join(data)} ({form.precision}, windows: {windows}). The default on each set:\n\n"
        f"{set_table(tuning.default, options.confidence)}"
    )
    if max_loss is not None and not any(tuning.default.schedule):
        text += f"\n\n{_nothing_dropped(tuning, max_loss, options.confidence)}"
    say(text)
    if size < FEW:
        say(
            "A ratio drops whole candidates, and these questions have few: the default costs "
            f"{tuning.default.dev_cost:.2f} here, {tuning.default.cost:.2f} with many, where its loss is unknown."
        )
    settings = {
        name: getattr(options, name)
        for name in ("confidence", "sample", "depths", "depth_pairs", "seed", "grid", "trials")
    }
    curve = {
        "data": data,
        **settings,
        "precision": form.precision,
        "windows": windows,
        "minimum": dev.minimum,
        "bounds": asdict(bounds),
        "questions": len(dev.sizes),
        "candidates": sum(dev.sizes),
        "default": asdict(tuning.default),
        "frontier": [asdict(point) for point in tuning.frontier],
        "frontiers": {metric: [point.schedule for point in frontier(tuning.tried, metric)] for metric in FIGURE_2},
        # The sets' results of every schedule would be most of the file.
        "tried": [{key: value for key, value in asdict(point).items() if key != "sets"} for point in tuning.tried],
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
        card=with_section(
            (source.path / "README.md").read_text(encoding="utf-8"),
            SECTION,
            f"{text}\n\nExpect a little less on other data.",
        ),
        files={
            "tune.json": json.dumps(curve, indent=1, allow_nan=False).encode() + b"\n",
            "tune.png": tuning_plot(tuning, title=f"{source.config.name}, {', '.join(data)}"),
        },
    )
    say(f"{options.out}: {source.config.name} drops {ratios_text(tuning.default.schedule)} by default")
    return Tuned(checkpoint=options.out, tuning=tuning)


def _score(checkpoint: Checkpoint, form: BackendChoice, options: TuneOptions) -> DevSets:
    scorer = Scorer.open(checkpoint, **asdict(form), windowing=windowing_of(options.windows))
    # Each depth of a data set is a set of its own, on which a schedule must hold its bound.
    sets: dict[str, list[tuple[Question, AllScores]]] = {}
    for data, name in zip(options.data, set_names(options.data), strict=True):
        # Other questions of the data give candidates for depths, so that all are read.
        every = list(read_questions(data))
        questions = sampled(every, size=options.sample, seed=options.seed, name="clean")
        check_not_trained_on(checkpoint.path, data, every, option="--data")
        check_choice(questions, every, f"--data {data}")
        if options.depths:
            deep = deep_questions(
                every, options.depths, size=options.sample, pairs=options.depth_pairs, seed=options.seed
            )
            deep_scores = score_depths(scorer, deep)
            for at_depths in progress(deep_scores, total=len(deep), unit="question", desc="score"):
                for depth, question, scores in at_depths:
                    sets.setdefault(f"{name}, {depth:,} candidates", []).append((question, scores))
        else:
            scored = score_questions(scorer, questions)
            sets[name] = list(progress(scored, total=len(questions), unit="question", desc="score"))
    return DevSets(
        checkpoint.config.scored_stage_layers,
        sets,
        minimum=options.minimum or checkpoint.config.drop_minimum,
        confidence=options.confidence,
    )


def _nothing_dropped(tuning: Tuning, max_loss: float, confidence: float) -> str:
    """The reason that the default drops nothing, in words."""
    drops = [point for point in tuning.tried if any(point.schedule)]
    text = (
        f"Nothing is dropped by default: no schedule that was tried is known with {100 * confidence:g} % confidence to "
        f"lose at most {max_loss:g} points"
    )
    if not drops:
        return f"{text}."
    bounded = [(point.bound, point) for point in drops if point.bound is not None]
    if not bounded:
        name, smallest = min(drops[0].sets.items(), key=lambda item: item[1].questions)
        most = max(point.dropping for point in drops)
        return (
            f"{text}. A bound needs at least {FEWEST} questions in every set ({name} has {smallest.questions}), and "
            f"{FEWEST} in all of which a candidate is dropped (no schedule drops one of more than {most})."
        )
    bound, nearest = min(bounded, key=lambda item: item[0])
    name, worst = max(nearest.sets.items(), key=lambda item: item[1].bound or 0.0)
    return (
        f"{text}. The nearest, {ratios_text(nearest.schedule)}, may lose {bound:.2f}; its worst set is {name} "
        f"({worst.questions} questions, {worst.loss:.2f} points lost). More questions make the bounds lower."
    )


def set_table(point: Measured, confidence: float) -> str:
    """A Markdown table with a row per set: a schedule's loss on it, and the bound of the loss."""
    title = TITLES.get(point.metric, point.metric)
    header = [
        "set",
        "questions",
        "candidates",
        "cost",
        title,
        f"{title} loss ± error",
        f"at most ({100 * confidence:g} %)",
    ]
    rows = [
        [
            name,
            str(row.questions),
            f"{row.candidates:.1f}",
            f"{row.cost:.2f}",
            f"{row.value:.1f}",
            f"{row.loss:.2f} ± {row.loss_error or 0.0:.2f}",
            "unknown" if row.bound is None else f"{row.bound:.2f}",
        ]
        for name, row in point.sets.items()
    ]
    return table(header, rows)
