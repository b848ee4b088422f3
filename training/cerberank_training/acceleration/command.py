"""`cerberank train accelerate`: a checkpoint gets exits and a drop schedule from its own scores; labels are not needed.

The body and the final scores stay what they are. Exits are trained on hidden states that are computed once and kept in
OUT.work; the schedule is tuned on questions that they were not trained on, against the model's own ranking. A killed
run goes on when the command is repeated. `latency_target_ms` and deadlines work for the new checkpoint.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, cast, get_args

from tokenizers import Tokenizer

from cerberank_models.backends.contract import Backend
from cerberank_models.backends.torch_backend import TorchBackend, load_ranker
from cerberank_models.backends.torch_stages import PRECISIONS
from cerberank_models.checkpoint.bound import Bound
from cerberank_models.checkpoint.folder import MANIFEST, Checkpoint, CheckpointError, read_checkpoint
from cerberank_models.commands.question_lines import read_questions
from cerberank_models.config import ExitConfig, Pooling, RankerConfig
from cerberank_models.convert.checkpoint import PARITY, ParityError, export_checkpoint
from cerberank_models.drop import RatioSchedule
from cerberank_models.network.exits import Exit
from cerberank_models.network.ranker import Ranker
from cerberank_training.acceleration.exits import ExitTraining, train_exits, with_exits
from cerberank_training.acceleration.schedule import (
    GRID,
    AgainstOwnRanking,
    check_drops,
    held_out_scores,
    measure_form,
    schedule_table,
)
from cerberank_training.acceleration.vectors import FrozenBody, compute_vectors
from cerberank_training.commands.tune import replace_section
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.evaluation.gate import GateError
from cerberank_training.evaluation.tune import DevSet, Tuning, TuningBounds, tune
from cerberank_training.students.calibration import calibration_texts
from cerberank_training.teachers.scoring.teacher import files_revision

LEAST = 20
"""The fewest questions to train on, and the fewest to tune on: with less, figures in percent mean nothing."""

RANGES = {
    "epochs": (1, math.inf),
    "learning_rate": (1e-9, 1.0),
    "seed": (0, 2**32 - 1),
    "max_loss": (0.0, 100.0),
    "max_cost": (0.0, 1.0),
    "minimum": (1, math.inf),
    "trials": (0, math.inf),
    "gate_questions": (1, math.inf),
    "min_agreement": (0.0, 100.0),
}
"""The least and the most of options, which are checked before any work."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
    except (CheckpointError, GateError, ParityError, ValueError, ArithmeticError, OSError) as error:
        print(f"cerberank train accelerate: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    defaults = ExitTraining()
    parser = argparse.ArgumentParser(prog="cerberank train accelerate", description=__doc__, allow_abbrev=False)
    parser.add_argument("checkpoint", type=Path, help="a checkpoint folder with model.safetensors")
    parser.add_argument(
        "--questions",
        type=Path,
        required=True,
        help="questions with candidates as `cerberank rank` reads them, of the kind and length that will be ranked",
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder to make; must not exist")
    parser.add_argument("--version", help="of the new folder (default: the old one's with -accelerated)")
    parser.add_argument(
        "--exits", type=_places, metavar="N,N,..", help="layers that exits come after (default: 1 to 4 sixths of all)"
    )
    parser.add_argument("--pooling", choices=get_args(Pooling), default="mean", help="what exits read of the tokens")
    parser.add_argument("--epochs", type=int, default=defaults.epochs)
    parser.add_argument("--learning-rate", type=float, default=defaults.learning_rate)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument(
        "--held-out", type=int, default=300, help="this many last questions choose the schedule, and train nothing"
    )
    parser.add_argument("--max-loss", type=float, help="points of agreement (default: 3, unless --max-cost is given)")
    parser.add_argument("--max-cost", type=float, help="cost relative to dropping nothing")
    parser.add_argument("--minimum", type=int, default=1, help="least number of candidates that the schedules leave")
    parser.add_argument("--trials", type=int, default=200, help="trials of Optuna after the grid; 0 skips Optuna")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:N")
    parser.add_argument("--precision", choices=tuple(PRECISIONS), default="fp32", help="of the body's pass")
    parser.add_argument(
        "--precisions", default="fp32,int8", help="ONNX forms to write beside the weights, comma-separated; '' for none"
    )
    parser.add_argument("--gate-questions", type=int, default=100, help="how many held-out questions check each form")
    parser.add_argument(
        "--min-agreement", type=float, default=95.0, help="percent of them in which a form's first candidate is the own"
    )
    return parser


def _places(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"takes numbers of layers, such as 2,4, not {text!r}") from error


def _check_ranges(arguments: argparse.Namespace) -> None:
    for name, (least, most) in RANGES.items():
        value = getattr(arguments, name)
        if value is not None and not least <= value <= most:
            bounds = f"at least {least}" + (f" and at most {most}" if most < math.inf else "")
            raise ValueError(f"--{name.replace('_', '-')} must be {bounds}, not {value}")


def _run(arguments: argparse.Namespace) -> None:
    _check_ranges(arguments)
    if arguments.out.exists():
        raise FileExistsError(f"{arguments.out} exists; a checkpoint is never overwritten")
    precisions = tuple(filter(None, arguments.precisions.split(",")))
    if unknown := set(precisions) - set(PARITY):
        raise ValueError(f"--precisions are of {', '.join(PARITY)}, not {', '.join(sorted(unknown))}")
    training = ExitTraining(epochs=arguments.epochs, learning_rate=arguments.learning_rate, seed=arguments.seed)
    checkpoint = read_checkpoint(arguments.checkpoint)
    ranker = _with_untrained_exits(checkpoint, arguments)
    questions = unlabelled(arguments.questions)
    start = len(questions) - arguments.held_out
    if min(start, arguments.held_out) < LEAST:
        raise ValueError(
            f"--held-out {arguments.held_out} of {len(questions)} questions leaves {start} to train on: "
            f"there must be at least {LEAST} of either"
        )
    body = _opened(ranker, arguments)
    work = arguments.out.with_name(f"{arguments.out.name}.work")
    Bound(work, _settings(checkpoint, arguments, ranker.config, training)).begin()
    found = compute_vectors(work, body, checkpoint.encoder(), questions)
    exits = [cast(Exit, exit_) for exit_ in ranker.exits][: len(ranker.config.stages) - 1]
    train_exits(exits, found, start, training)
    held_out = list(held_out_scores(exits, found, questions, start=start))
    dev = DevSet(ranker.config.stage_layers, held_out, minimum=arguments.minimum, measure=AgainstOwnRanking())
    max_loss = 3.0 if arguments.max_loss is None and arguments.max_cost is None else arguments.max_loss
    bounds = TuningBounds(max_loss=max_loss, max_cost=arguments.max_cost)
    tuning = tune(dev, bounds, ratios=GRID, trials=arguments.trials, seed=arguments.seed)
    check_drops(tuning)
    ranker.config = ranker.config.model_copy(
        update={
            "drop_schedule": tuning.default.schedule,
            "drop_minimum": arguments.minimum,
            "tuned_schedules": tuning.menu,
        }
    )
    text = _report(tuning, dev, arguments, start)
    print(text)  # noqa: T201
    checked = random.Random(0).sample(held_out, min(arguments.gate_questions, len(held_out)))

    def accept(precision: str, form: Backend[Any]) -> None:
        policy = RatioSchedule(tuning.default.schedule, arguments.minimum)
        figures = measure_form(form, checkpoint.encoder(), checked, policy)
        print(f"{precision}: {figures}")  # noqa: T201
        figures.check(precision, arguments.min_agreement)

    accept("weights", TorchBackend(ranker))
    export_checkpoint(
        ranker,
        Tokenizer.from_file(str(checkpoint.path / "tokenizer.json")),
        arguments.out,
        card=replace_section((checkpoint.path / "README.md").read_text(encoding="utf-8"), text),
        version=arguments.version or f"{checkpoint.manifest.version}-accelerated",
        source=checkpoint.manifest.source,
        metrics=checkpoint.manifest.metrics,
        precisions=precisions,
        calibration=calibration_texts(questions[:start], seed=arguments.seed),
        accept=accept,
    )
    print(f"{arguments.out} is written; {work} may be removed")  # noqa: T201


def unlabelled(path: Path) -> list[Question]:
    """The questions of a file as `cerberank rank` reads it, in its order. Raises ValueError with line and field."""
    return [
        Question(
            id=str(number),
            text=text,
            candidates=tuple(LabelledCandidate(candidate, 0) for candidate in candidates),
        )
        for number, (text, candidates) in enumerate(read_questions(path), start=1)
    ]


def default_places(body_layers: int, layers: int) -> tuple[int, ...]:
    """Layers after one to four sixths of all: later exits save little, the first stage of many drops little.

    >>> default_places(5, 6), default_places(23, 24), default_places(1, 2)
    ((1, 2, 3, 4), (4, 8, 12, 16), (1,))
    """
    places = {round(layers * sixths / 6) for sixths in range(1, 5)}
    return tuple(sorted(place for place in places if 1 <= place <= body_layers))


def _with_untrained_exits(checkpoint: Checkpoint, arguments: argparse.Namespace) -> Ranker:
    if checkpoint.config.first_stage is not None:
        raise ValueError(
            f"{checkpoint.path} has a first stage: accelerate the checkpoint without it, then add it again"
        )
    source = load_ranker(checkpoint)
    body, layers = source.config.architecture.body_layers, source.config.transformer.layers
    most = min(body, layers - 1)
    if most < 1:
        raise ValueError(f"{checkpoint.path} has no body layer before its last one: there is no place for exits")
    places = arguments.exits or default_places(body, layers)
    if list(places) != sorted(set(places)) or places[0] < 1 or places[-1] > most:
        given = ",".join(map(str, places))
        raise ValueError(f"--exits {given} must come after distinct, ascending body layers 1..{most}")
    return with_exits(
        source, [ExitConfig(after=place, pooling=arguments.pooling) for place in places], seed=arguments.seed
    )


def _opened(ranker: Ranker, arguments: argparse.Namespace) -> FrozenBody:
    try:
        return FrozenBody.of(ranker, device=arguments.device, precision=arguments.precision)
    except RuntimeError as error:
        raise ValueError(f"--device {arguments.device}: {error}") from error


def _settings(
    checkpoint: Checkpoint, arguments: argparse.Namespace, config: RankerConfig, training: ExitTraining
) -> dict[str, Any]:
    """What a run that goes on must have in common with the one that was begun."""
    return {
        "checkpoint": files_revision([checkpoint.path / MANIFEST]),
        "questions": hashlib.sha256(arguments.questions.read_bytes()).hexdigest(),
        "exits": [exit_.model_dump() for exit_ in config.exits],
        "precision": arguments.precision,
        "held_out": arguments.held_out,
        **asdict(training),
    }


def _report(tuning: Tuning, dev: DevSet, arguments: argparse.Namespace, trained: int) -> str:
    return (
        f"{schedule_table(tuning)}\n\n"
        f"Exits by `train accelerate`: they learned this model's own scores on {trained} questions without labels. "
        f"The schedules were chosen on {len(dev.sizes)} others, {fmean(dev.sizes):.1f} candidates each, against the "
        "model's own ranking of all candidates: whether its first is still first, and how many of its first five are "
        "still among the first five; agreement is the mean of both. Expect a little less on other questions."
    )
