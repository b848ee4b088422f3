"""`cerberank train tune`: drop schedules for the exits of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.model_card import with_section
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.commands.options import OWN, BackendChoice, BackendOptions, Windows, check_device
from cerberank_models.commands.values import Count, DataSpec, Integers, Share, Whole, data_help
from cerberank_models.config import ListSchedule, RankerConfig, TunedSchedule
from cerberank_models.drop import RatioSchedule
from cerberank_models.output import UsageError, say
from cerberank_models.progress import progress
from cerberank_models.windows import windowing_of
from cerberank_training.commands.evaluation.evaluate_options import Schedules
from cerberank_training.data import Question, read_questions, sampled, set_names
from cerberank_training.data.deep_questions import DEPTH_PAIRS, deep_questions
from cerberank_training.evaluation.dev_sets import FEWEST, DevSets, Measured
from cerberank_training.evaluation.plots import FIGURE_2, tuning_plot
from cerberank_training.evaluation.question_metrics import TITLES
from cerberank_training.evaluation.report import table
from cerberank_training.evaluation.schedule_search import SECTION, Tuning, TuningBounds, frontier, shares_text
from cerberank_training.evaluation.schedule_search import tune as search
from cerberank_training.evaluation.variants import AllScores, Scorer, score_depths, score_questions
from cerberank_training.runs.run_data import check_choice
from cerberank_training.runs.summary import check_not_trained_on

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
    """Largest bound of the loss, as the mean over the sets, in points of MAP (default: 0.3, unless --max-cost is
    given)."""
    max_set_loss: float = 0.8
    """Largest loss of each set, in points of MAP; P@1 must not be significantly lower on any set either."""
    confidence: Annotated[float, Parameter(validator=Number(gte=0.5, lt=1))] = 0.95
    """Confidence of the bound, and of the test of P@1."""
    max_cost: Share | None = None
    """Largest cost, as a share of the layers that run without drops: 0.5 is half of them."""
    schedule: Schedules = ()
    """Schedule to measure in place of a search, in the form that `evaluate` takes; repeat for several."""
    exits_only: bool = False
    """Leave the lexical layer out, as for lists with texts that a search found by their meaning."""
    minimum: Count | None = None
    """Least number of candidates that a schedule keeps (default: the checkpoint's)."""
    sample: Count = 1000
    """Number of questions with a positive to draw of each set, if it has so many."""
    depths: Integers = ()
    """Numbers of candidates, separated by commas; missing candidates are taken from other documents. Each gets a
    schedule of its own, which is used for questions with at least as many candidates."""
    depth_pairs: Count = DEPTH_PAIRS
    """Most pairs at one depth of a set; a depth with more uses fewer questions."""
    seed: Whole = 0
    """Random seed."""
    windows: Windows = None
    backend: BackendOptions = OWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """A checkpoint with drop schedules."""

    checkpoint: Path
    tunings: Mapping[int | None, Tuning]
    """By --depths (None without them): the default schedule, those on the frontier, and all that were tried."""


def tune(checkpoint: Path, /, *, options: TuneOptions) -> Tuned:
    """Choose a ranker's drop schedules on dev data, and write them into a new checkpoint.

    Every stage scores every question once, as does the lexical layer. The default schedule is the cheapest that loses
    with --confidence at most --max-loss points of MAP in the mean over the sets, and at most --max-set-loss on each; or
    the most accurate one that costs at most --max-cost. Where too few questions show that, nothing is dropped. With
    --depths there is one for each range of candidate counts. The new folder also states a few schedules to choose among
    under load, and holds the curve as tune.json and tune.png.

    Args:
        checkpoint: Checkpoint folder.
        options: Options.
    """
    if options.out.exists():
        raise FileExistsError(f"{options.out} exists; a checkpoint is never overwritten")
    if len(set(options.data)) < len(options.data):
        raise UsageError("--data names a data set twice.")
    if options.exits_only and any(schedule.lexical for schedule in options.schedule):
        raise UsageError("--exits-only cannot go with a --schedule that has a share of the lexical layer.")
    source = read_checkpoint(checkpoint)
    max_loss = 0.3 if options.max_loss is None and options.max_cost is None else options.max_loss
    bounds = TuningBounds(
        max_loss=max_loss,
        max_set_loss=None if max_loss is None else options.max_set_loss,
        max_cost=options.max_cost,
    )
    form, windows = options.backend.chosen(source), options.windows or source.config.encoding.windows
    check_device(form.device, form.kind)
    minimum = options.minimum or source.config.drop_minimum
    wanted = [replace(schedule, minimum=minimum) for schedule in options.schedule]
    # From few candidates to many: what is known for fewer holds for more.
    tunings: dict[int | None, Tuning] = {}
    devs: dict[int | None, DevSets] = {}
    fewer: RatioSchedule | None = None
    for depth, sets in sorted(_score(source, form, options).items(), key=lambda item: item[0] or 0):
        layers, confidence = source.config.scored_stage_layers, options.confidence
        devs[depth] = DevSets(layers, sets, minimum=minimum, confidence=confidence, lexical=not options.exits_only)
        tunings[depth] = search(devs[depth], bounds, schedules=wanted, fewer=fewer)
        fewer = tunings[depth].default.policy
    # The menu has the defaults of all ranges, measured like its other schedules where there are most questions.
    most = max(devs, key=lambda depth: (len(devs[depth].sizes), depth or 0))
    defaults = tuple(devs[most].measure(tuning.default.policy) for tuning in tunings.values())
    menu = replace(tunings[most], also=defaults).menu
    data = set_names(options.data)
    text = "\n\n".join(
        [
            *(_section(depth, tuning, max_loss, options.confidence) for depth, tuning in tunings.items()),
            f"Chosen on {', '.join(data)} ({form.precision}, windows: {windows}).",
        ]
    )
    say(text)
    settings = {name: getattr(options, name) for name in ("confidence", "sample", "depths", "depth_pairs", "seed")}
    curve = {
        "data": data,
        **settings,
        "precision": form.precision,
        "windows": windows,
        "minimum": minimum,
        "bounds": asdict(bounds),
        "depths": [{"candidates": depth, **_curve(tuning)} for depth, tuning in tunings.items()],
    }
    revise_checkpoint(
        source,
        options.out,
        version=options.version or f"{source.manifest.version}-tuned",
        config=_with_schedules(source.config, tunings, menu, minimum),
        card=with_section(
            (source.path / "README.md").read_text(encoding="utf-8"),
            SECTION,
            f"{text}\n\nExpect a little less on other data.",
        ),
        files={
            "tune.json": json.dumps(curve, indent=1, allow_nan=False).encode() + b"\n",
            "tune.png": tuning_plot(tunings, title=f"{source.config.name}, {', '.join(data)}"),
        },
    )
    say(f"{options.out}: {source.config.name} drops {_defaults(tunings)} by default")
    return Tuned(checkpoint=options.out, tunings=tunings)


def _score(
    checkpoint: Checkpoint, form: BackendChoice, options: TuneOptions
) -> dict[int | None, dict[str, list[tuple[Question, AllScores]]]]:
    """The scored questions of each set, by depth."""
    scorer = Scorer.open(checkpoint, **asdict(form), windowing=windowing_of(options.windows))
    by_depth: dict[int | None, dict[str, list[tuple[Question, AllScores]]]] = {}
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
                    by_depth.setdefault(depth, {}).setdefault(name, []).append((question, scores))
        else:
            scored = score_questions(scorer, questions)
            by_depth.setdefault(None, {})[name] = list(
                progress(scored, total=len(questions), unit="question", desc="score")
            )
    return by_depth


def _with_schedules(
    config: RankerConfig, tunings: Mapping[int | None, Tuning], menu: tuple[TunedSchedule, ...], minimum: int
) -> RankerConfig:
    """The config with the schedules. The first is for few candidates too, and equal ranges are joined."""
    first, *others = tunings.items()
    longer, last = [], first[1].default.policy
    for depth, tuning in others:
        policy = tuning.default.policy
        if policy != last:
            longer.append(ListSchedule(candidates=depth, schedule=policy.ratios, lexical_ratio=policy.lexical))
        last = policy
    return config.model_copy(
        update={
            "drop_schedule": first[1].default.policy.ratios,
            "lexical_ratio": first[1].default.policy.lexical,
            "drop_minimum": minimum,
            "longer_lists": tuple(longer),
            "tuned_schedules": menu,
        }
    )


def _curve(tuning: Tuning) -> dict[str, Any]:
    return {
        "default": asdict(tuning.default),
        "frontiers": {metric: [str(point.policy) for point in frontier(tuning.tried, metric)] for metric in FIGURE_2},
        # The sets' results of every schedule would be most of the file.
        "tried": [{key: value for key, value in asdict(point).items() if key != "sets"} for point in tuning.tried],
    }


def _defaults(tunings: Mapping[int | None, Tuning]) -> str:
    """The default schedules in words."""
    texts: list[str] = []
    for depth, tuning in tunings.items():
        text = shares_text(tuning.default.policy)
        texts.append(f"{text} (from {depth:,} candidates on)" if texts else text)
    return "; ".join(texts)


def _section(depth: int | None, tuning: Tuning, max_loss: float | None, confidence: float) -> str:
    """The tables of a range of candidate counts."""
    text = (
        f"{tuning.table({name: TITLES[name] for name in SHOWN})}\n\nThe default on each set:\n\n"
        f"{set_table(tuning.default)}"
    )
    if depth is not None:
        text = f"**{depth:,} candidates**\n\n{text}"
    if max_loss is not None and not tuning.default.dropping:
        text += f"\n\n{_nothing_dropped(tuning, max_loss, confidence)}"
    return text


def _nothing_dropped(tuning: Tuning, max_loss: float, confidence: float) -> str:
    """The reason that the default drops nothing, in words."""
    drops = [point for point in tuning.tried if point.dropping]
    text = (
        f"Nothing is dropped by default: no schedule that was tried is known with {100 * confidence:g} % confidence to "
        f"lose at most {max_loss:g} points"
    )
    bounded = [(point.bound, point) for point in drops if point.bound is not None]
    if not bounded:
        most = max((point.dropping for point in drops), default=0)
        return (
            f"{text}. A bound needs at least {FEWEST} questions in which a candidate is dropped (no schedule drops one "
            f"of more than {most})."
        )
    bound, nearest = min(bounded, key=lambda item: item[0])
    name, worst = max(nearest.sets.items(), key=lambda item: item[1].loss)
    return (
        f"{text}. The nearest, {shares_text(nearest.policy)}, may lose {bound:.2f}; its worst set is {name} "
        f"({worst.questions} questions, {worst.loss:.2f} points lost). More questions make the bound lower."
    )


def set_table(point: Measured) -> str:
    """A Markdown table with a row per set: a schedule's losses on it, and a last row with their means and the bound."""
    title = TITLES.get(point.metric, point.metric)
    header = ["set", "questions", "candidates", "cost", title, f"{title} loss ± error", "P@1 loss"]
    rows = [
        [
            name,
            str(row.questions),
            f"{row.candidates:.1f}",
            f"{row.cost:.2f}",
            f"{row.value:.1f}",
            f"{row.loss:.2f} ± {row.loss_error:.2f}",
            "" if row.first_loss is None else f"{row.first_loss:.2f}" + (" (significant)" if row.first_lower else ""),
        ]
        for name, row in point.sets.items()
    ]
    bound = "unknown" if point.bound is None else f"at most {point.bound:.2f}"
    mean = f"{point.loss:.2f} ± {point.loss_error:.2f}, {bound}"
    rows.append(["mean", str(point.questions), "", f"{point.cost:.2f}", f"{point.metrics[point.metric]:.1f}", mean, ""])
    return table(header, rows)
