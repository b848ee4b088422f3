"""`cerberank train accelerate`: exits and a drop schedule for a checkpoint, from its own scores."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, cast

from cyclopts import Parameter
from tokenizers import Tokenizer

from cerberank_models.backends.stage_contract import Backend
from cerberank_models.backends.torch_backend import TorchBackend, load_ranker
from cerberank_models.checkpoint.bound import Bound
from cerberank_models.checkpoint.folder import MANIFEST, Checkpoint, read_checkpoint
from cerberank_models.checkpoint.model_card import RUN, with_section
from cerberank_models.commands.options import check_device, chosen_device
from cerberank_models.commands.values import Count, DataSpec, Integers, Names, Percent, Share, Whole
from cerberank_models.config import ExitConfig, Pooling, RankerConfig
from cerberank_models.convert.checkpoint import PARITY, Forms, export_checkpoint
from cerberank_models.drop import RatioSchedule
from cerberank_models.network.exits import Exit
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.output import UsageError, note, say
from cerberank_training.acceleration.exits import ExitTraining, train_exits, with_exits
from cerberank_training.acceleration.schedule import (
    GRID,
    TITLES,
    AgainstOwnRanking,
    FormAgreement,
    check_drops,
    held_out_scores,
    measure_form,
    within_gate,
)
from cerberank_training.acceleration.vectors import FrozenBody, compute_vectors
from cerberank_training.commands.tune import SECTION
from cerberank_training.commands.unlabelled import (
    calibration_texts,
    unlabelled,
    unlabelled_content,
    unlabelled_trained_on,
)
from cerberank_training.evaluation.gate import GateError
from cerberank_training.evaluation.schedule_search import DevSets, Tuning, TuningBounds, schedule_table, tune
from cerberank_training.teachers.scoring.teacher import files_revision

LEAST = 20
"""The least number of questions to train on, and to tune on; with fewer, percentages mean nothing."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AccelerateOptions:
    """The options of `train accelerate`."""

    data: DataSpec
    """Questions with candidates, of the kind and length that will be ranked: FORMAT:PATH, or a file as `cerberank rank`
    reads it. Labels are not used."""
    out: Path
    """Checkpoint folder to make."""
    version: str | None = None
    """Version of the new folder (default: the old one's with -accelerated)."""
    exits: Integers = ()
    """Layers to add an exit after, such as 2,4 (default: after one to four sixths of all layers)."""
    pooling: Pooling = "mean"
    """Vector that exits read: the mean of the tokens, or the first or last token."""
    training: ExitTraining = field(default_factory=ExitTraining)
    held_out: Count = 300
    """Number of questions, from the end of the file, that choose the schedule and are not trained on (at least 20)."""
    max_loss: Percent | None = None
    """Largest loss in points of agreement (default: 3, unless --max-cost is given)."""
    max_cost: Share | None = None
    """Largest cost, as a share of the layers that run without drops: 0.5 is half of them."""
    minimum: Count = 1
    """Least number of candidates that a schedule keeps."""
    trials: Whole = 200
    """Number of schedules that Optuna tries after the grid; 0 skips Optuna."""
    device: str = "auto"
    """cpu, cuda, or cuda:N (default: a GPU if there is one)."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision in which the hidden states are computed."""
    forms: Names = ("fp32", "int8")
    """ONNX forms to write beside the weights, separated by commas; none for weights alone."""
    gate_questions: Count = 100
    """Number of held-out questions that check each form."""
    min_agreement: Percent = 95.0
    """Least share of --gate-questions with the same first candidate, in percent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerated:
    """A checkpoint with exits and a drop schedule."""

    checkpoint: Path
    tuning: Tuning
    """As of `tune`, against the model's own ranking."""
    forms: Mapping[str, FormAgreement]
    """The agreement of the weights and of each ONNX form, with the schedule, with the model's own ranking."""


def accelerate(checkpoint: Path, /, *, options: AccelerateOptions) -> Accelerated:
    """Give a checkpoint exits and a drop schedule from its own scores; labels are not needed.

    The body and the final scores do not change. Exits are trained on hidden states that are computed once and
    kept in OUT.work; the schedule is tuned on questions that they were not trained on, against the model's own
    ranking. A killed run continues when the command is repeated. `latency_target_ms` and deadlines work for the new
    checkpoint.

    Args:
        checkpoint: Checkpoint folder with model.safetensors.
        options: Options.
    """
    if options.out.exists():
        raise FileExistsError(f"{options.out} exists; a checkpoint is never overwritten")
    if unknown := set(options.forms) - set(PARITY):
        raise UsageError(f"--forms are of {', '.join(PARITY)}, not {', '.join(sorted(unknown))}.")
    device = chosen_device(options.device)
    check_device(device)
    return _run(read_checkpoint(checkpoint), replace(options, device=device))


def _run(checkpoint: Checkpoint, options: AccelerateOptions) -> Accelerated:
    # 1. The network with new exits, and the questions in two parts: to train them, and to choose the schedule.
    training = options.training
    ranker = _with_untrained_exits(checkpoint, options)
    questions = unlabelled(options.data)
    start = len(questions) - options.held_out
    if min(start, options.held_out) < LEAST:
        raise ValueError(
            f"--held-out {options.held_out} of {len(questions)} questions leaves {start} to train on: "
            f"there must be at least {LEAST} of either"
        )
    if warning := unlabelled_trained_on(checkpoint.path, options.data, questions):
        note(f"cerberank train accelerate: --data: {warning}")
    # 2. The body does not change, so what exits read is computed once, and kept for a repeated call.
    body = FrozenBody.of(ranker, device=options.device, precision=options.precision)
    work = options.out.with_name(f"{options.out.name}.work")
    content = unlabelled_content(options.data, questions)
    Bound(work, _settings(checkpoint, options, ranker.config, training) | {"questions": content}).begin()
    pooled = compute_vectors(work, body, checkpoint.encoder(), questions)
    exits = [cast(Exit, exit_) for exit_ in ranker.exits][: len(ranker.config.stages) - 1]
    train_exits(exits, pooled, start, training)
    held_out = list(held_out_scores(exits, pooled, questions, start=start))
    # 3. The schedule is chosen by the model's own ranking, among those that the gate of the forms accepts.
    dev = DevSets(
        ranker.config.stage_layers, {"held out": held_out}, minimum=options.minimum, reference=AgainstOwnRanking()
    )
    max_loss = 3.0 if options.max_loss is None and options.max_cost is None else options.max_loss
    bounds = TuningBounds(max_loss=max_loss, max_cost=options.max_cost, least={"top1_agreement": options.min_agreement})
    tuning = tune(dev, bounds, ratios=GRID, trials=options.trials, seed=options.training.seed)
    check_drops(tuning)
    checked = random.Random(0).sample(held_out, min(options.gate_questions, len(held_out)))
    tuning = within_gate(tuning, bounds, checked, minimum=options.minimum, least=options.min_agreement)
    # 4. The checkpoint, each form of which is measured with the schedule.
    ranker.config = ranker.config.model_copy(
        update={
            "drop_schedule": tuning.default.schedule,
            "drop_minimum": options.minimum,
            "tuned_schedules": tuning.menu,
        }
    )
    text = _report(tuning, dev, options, start)
    say(text)

    forms: dict[str, FormAgreement] = {}

    def accept(precision: str, form: Backend[Any]) -> None:
        policy = RatioSchedule(tuning.default.schedule, options.minimum)
        figures = measure_form(form, checkpoint.encoder(), checked, policy)
        say(f"{precision}: {figures}")
        forms[precision] = figures
        try:
            figures.check(precision, options.min_agreement)
        except GateError as error:
            again = "a smaller --max-loss or a larger --max-cost"
            raise GateError(f"{error}; repeat with {again}, which takes little time while {work} is kept") from error

    accept("weights", TorchBackend(ranker))
    export_checkpoint(
        ranker,
        Tokenizer.from_file(str(checkpoint.path / "tokenizer.json")),
        options.out,
        card=with_section((checkpoint.path / "README.md").read_text(encoding="utf-8"), SECTION, text),
        version=options.version or f"{checkpoint.manifest.version}-accelerated",
        source=checkpoint.manifest.source,
        metrics=checkpoint.manifest.metrics,
        forms=Forms(
            precisions=options.forms,
            calibration=calibration_texts(questions[:start], seed=options.training.seed),
            accept=accept,
        ),
        files={RUN: checkpoint.path / RUN} if RUN in checkpoint.manifest.files else {},
    )
    say(f"{options.out} is written; {work} may be removed")
    return Accelerated(checkpoint=options.out, tuning=tuning, forms=forms)


def default_places(body_layers: int, layers: int) -> tuple[int, ...]:
    """Layers after one to four sixths of all: later exits save little, the first stage of many drops little.

    >>> default_places(5, 6), default_places(23, 24), default_places(1, 2)
    ((1, 2, 3, 4), (4, 8, 12, 16), (1,))
    """
    places = {round(layers * sixths / 6) for sixths in range(1, 5)}
    return tuple(sorted(place for place in places if 1 <= place <= body_layers))


def _with_untrained_exits(checkpoint: Checkpoint, options: AccelerateOptions) -> RankingNetwork:
    if checkpoint.config.first_stage is not None:
        raise ValueError(
            f"{checkpoint.path} has a first stage: accelerate the checkpoint without it, then add it again"
        )
    source = load_ranker(checkpoint)
    body, layers = source.config.architecture.body_layers, source.config.transformer.layers
    most = min(body, layers - 1)
    if most < 1:
        raise ValueError(f"{checkpoint.path} has no body layer before its last one: there is no place for exits")
    places = options.exits or default_places(body, layers)
    if list(places) != sorted(set(places)) or places[0] < 1 or places[-1] > most:
        exits = ",".join(map(str, places))
        raise ValueError(f"--exits {exits} must come after distinct, ascending body layers 1..{most}")
    return with_exits(
        source, [ExitConfig(after=place, pooling=options.pooling) for place in places], seed=options.training.seed
    )


def _settings(
    checkpoint: Checkpoint, options: AccelerateOptions, config: RankerConfig, training: ExitTraining
) -> dict[str, Any]:
    """The settings that may not change when a run is continued, without the questions."""
    return {
        "checkpoint": files_revision([checkpoint.path / MANIFEST]),
        "exits": [exit_.model_dump() for exit_ in config.exits],
        "precision": options.precision,
        "held_out": options.held_out,
        **asdict(training),
    }


def _report(tuning: Tuning, dev: DevSets, options: AccelerateOptions, trained: int) -> str:
    return (
        f"{schedule_table(tuning, TITLES)}\n\n"
        f"Exits by `train accelerate`: they learned this model's own scores on {trained} questions without labels. "
        f"The schedules were chosen on {len(dev.sizes)} others, {fmean(dev.sizes):.1f} candidates each, against the "
        "model's own ranking of all candidates: whether its first is still first, and how many of its first five are "
        "still among the first five; agreement is the mean of both. Expect a little less on other questions."
    )
