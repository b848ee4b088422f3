"""`cerberank train tune`: choose a cascade's drop schedule on dev data and write it into a new checkpoint.

Every stage scores every question once; then the paper's grid and Optuna search. The default schedule is the cheapest
that loses at most --max-loss points of MAP, or the most accurate one that costs at most --max-cost. The new folder
also states a few schedules to choose among under load, and holds the curve as tune.json and tune.png.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from tqdm import tqdm

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.commands.backend_options import (
    BackendOptions,
    add_backend_options,
    add_windows_option,
    backend_options,
)
from cerberank_models.commands.ratios import ratios
from cerberank_models.first_stage.rank import open_offline
from cerberank_models.windows import AS_SERVED, windowing_of
from cerberank_training.data import read_questions, sampled
from cerberank_training.evaluation.evaluate import score_questions
from cerberank_training.evaluation.plots import tuning_plot
from cerberank_training.evaluation.report import table
from cerberank_training.evaluation.tune import GRID, DevSet, Tuning, TuningBounds, tune
from cerberank_training.runs.place import check_device

FEW = 20
"""With fewer candidates per question than this, the cost on dev says little about large questions."""
SECTION = "## Drop schedules"


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
    except (ValueError, ArithmeticError, OSError) as error:
        print(f"cerberank train tune: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank train tune", description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="a checkpoint folder with exits")
    parser.add_argument(
        "--data", required=True, metavar="FORMAT:PATH", help="dev data, of the kind that will be ranked"
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder to make; must not exist")
    parser.add_argument("--version", help="of the new folder (default: the old one's with -tuned)")
    parser.add_argument("--max-loss", type=float, help="points of MAP (default: 1, unless --max-cost is given)")
    parser.add_argument("--max-cost", type=float, help="cost relative to dropping nothing")
    parser.add_argument("--grid", type=ratios, default=GRID, metavar="A,B,..", help="ratios tried at every exit")
    parser.add_argument(
        "--minimum", type=int, help="least number of candidates that the schedules leave (default: the checkpoint's)"
    )
    parser.add_argument("--trials", type=int, default=200, help="trials of Optuna after the grid; 0 skips Optuna")
    parser.add_argument("--sample", type=int, help="this many questions that have a positive, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0)
    add_backend_options(parser)
    add_windows_option(parser)
    return parser


def _run(arguments: argparse.Namespace) -> None:
    if arguments.out.exists():
        raise FileExistsError(f"{arguments.out} exists; a checkpoint is never overwritten")
    checkpoint = read_checkpoint(arguments.checkpoint)
    max_loss = 1.0 if arguments.max_loss is None and arguments.max_cost is None else arguments.max_loss
    bounds = TuningBounds(max_loss=max_loss, max_cost=arguments.max_cost)
    form, windows = backend_options(arguments), arguments.windows or AS_SERVED.combine
    check_device(form.device, form.kind)
    dev = _score(checkpoint, form, arguments)
    tuning = tune(dev, bounds, ratios=arguments.grid, trials=arguments.trials, seed=arguments.seed)
    data, size = _name(arguments.data), fmean(dev.sizes)
    text = (
        f"{schedule_table(tuning)}\n\n"
        f"Chosen on {data} ({len(dev.sizes)} questions, {size:.1f} candidates each, {form.precision}, "
        f"windows: {windows})."
    )
    print(text)  # noqa: T201
    if size < FEW:
        print(  # noqa: T201
            "A ratio drops whole candidates, and these questions have few: the default costs "
            f"{tuning.default.dev_cost:.2f} here, {tuning.default.cost:.2f} with many, where its loss is unknown."
        )
    settings = {name: getattr(arguments, name) for name in ("sample", "seed", "precision", "grid", "trials")}
    curve = {
        "data": data,
        **settings,
        "windows": windows,
        "minimum": dev.minimum,
        "bounds": asdict(bounds),
        "questions": len(dev.sizes),
        "candidates": sum(dev.sizes),
        **asdict(tuning),
    }
    revise_checkpoint(
        checkpoint,
        arguments.out,
        version=arguments.version or f"{checkpoint.manifest.version}-tuned",
        config=checkpoint.config.model_copy(
            update={
                "drop_schedule": tuning.default.schedule,
                "drop_minimum": dev.minimum,
                "tuned_schedules": tuning.menu,
            }
        ),
        card=replace_section(
            (checkpoint.path / "README.md").read_text(encoding="utf-8"), f"{text} Expect a little less on other data."
        ),
        files={
            "tune.json": json.dumps(curve, indent=1, allow_nan=False).encode() + b"\n",
            "tune.png": tuning_plot(tuning, title=f"{checkpoint.config.name}, {data}"),
        },
    )


def _name(data: str) -> str:
    """`FORMAT:FILE` of `FORMAT:PATH`: a model card names no folder of the machine that it was made on."""
    name, _, path = data.partition(":")
    return f"{name}:{Path(path).name}"


def _score(checkpoint: Checkpoint, form: BackendOptions, arguments: argparse.Namespace) -> DevSet:
    questions = sampled(read_questions(arguments.data), size=arguments.sample, seed=arguments.seed, name="clean")
    backend = open_backend(checkpoint, **asdict(form))
    first = None if checkpoint.config.first_stage is None else open_offline(checkpoint, **asdict(form))
    windowing = windowing_of(arguments.windows)
    scored = score_questions(backend, checkpoint.encoder(), questions, first, windowing=windowing)
    return DevSet(
        checkpoint.config.scored_stage_layers,
        tqdm(scored, total=len(questions), unit="question", desc="score", disable=None),
        minimum=arguments.minimum or checkpoint.config.drop_minimum,
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
