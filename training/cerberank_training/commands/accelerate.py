"""`cerberank train accelerate`: exits and a drop schedule for a checkpoint, from its own scores."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, cast

from cyclopts import Parameter
from safetensors.torch import load_file, save
from tokenizers import Tokenizer

from cerberank_models.backends.stage_contract import Backend
from cerberank_models.backends.torch_backend import TorchBackend, load_ranker
from cerberank_models.checkpoint.atomic import replacing
from cerberank_models.checkpoint.bound import Bound
from cerberank_models.checkpoint.folder import MANIFEST, Checkpoint, read_checkpoint
from cerberank_models.checkpoint.model_card import RUN, with_section
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.commands.options import BackendOptions
from cerberank_models.commands.values import Count, DataSpec, Integers, Names, Percent, Positive, Share, Whole
from cerberank_models.config import ExitConfig, Pooling, RankerConfig
from cerberank_models.convert.checkpoint import PARITY, Forms, export_checkpoint
from cerberank_models.network.exits import Exit
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.output import UsageError, say
from cerberank_models.progress import progress
from cerberank_models.transformer import OpaqueTransformer
from cerberank_training.acceleration.exits import EXAMPLES_PER_STEP, Exits, StateBatch, exits_learner, with_exits
from cerberank_training.acceleration.schedule import (
    TITLES,
    AgainstOwnRanking,
    FormAgreement,
    check_drops,
    exits_agreement,
    held_out_scores,
    measure_form,
    same_first_share,
    within_gate,
)
from cerberank_training.acceleration.states import ExitInputs, FrozenBody, compute_states
from cerberank_training.commands.tune import SECTION
from cerberank_training.commands.unlabelled import (
    unlabelled,
    unlabelled_content,
    unlabelled_trained_on,
)
from cerberank_training.data import Question
from cerberank_training.data.sampling import calibration_texts
from cerberank_training.evaluation.dev_sets import DevSets
from cerberank_training.evaluation.gate import GateError
from cerberank_training.evaluation.schedule_search import Tuning, TuningBounds, tune
from cerberank_training.evaluation.variants import AllScores, Scorer, score_questions
from cerberank_training.runs.base import Base
from cerberank_training.runs.job import Job, run_job
from cerberank_training.runs.launched import launched_processes
from cerberank_training.runs.loop import Learner
from cerberank_training.runs.record import RunRecord
from cerberank_training.runs.settings import RunOptions, TrainConfig
from cerberank_training.teachers.scoring.teacher import files_revision

TOKEN_FEATURES = 32
"""The default number of features of single tokens that exits read: their layer has less than a hundredth of the weights
of a layer of the body."""
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
    pooling: Pooling | None = None
    """Vector that exits read: the mean of the tokens, or the first or last token (default: the mean, and of a decoder
    the last token)."""
    token_features: Whole | None = None
    """Number of features of single tokens whose mean exits read too (default: 32, and 0 for a decoder)."""
    epochs: Positive = 10
    """Number of passes over the questions."""
    learning_rate: Positive = 1e-3
    """Highest learning rate."""
    seed: Whole = 1
    """Random seed."""
    held_out: Count = 300
    """Number of questions, from the end of the file, that choose the schedule and are not trained on (at least 20)."""
    max_loss: Percent | None = None
    """Largest loss in points of agreement (default: 3, unless --max-cost is given)."""
    max_cost: Share | None = None
    """Largest cost, as a share of the layers that run without drops: 0.5 is half of them."""
    minimum: Count = 1
    """Least number of candidates that a schedule keeps."""
    run: RunOptions = field(default_factory=RunOptions)
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision in which the hidden states are computed."""
    forms: Names = ("fp32", "int8")
    """ONNX forms to write beside the weights, separated by commas; none for weights alone."""
    gate_questions: Count = 100
    """Number of held-out questions that check each form."""
    min_agreement: Percent = 95.0
    """Least share of --gate-questions with the same first candidate, in percent."""

    @property
    def training(self) -> TrainConfig:
        """The settings of the loop."""
        return TrainConfig(
            epochs=self.epochs,
            examples_per_step=EXAMPLES_PER_STEP,
            evaluate_every=0.1,
            learning_rate=self.learning_rate,
            warmup=0.0,
            clip=0.0,
            precision="fp32",
            seed=self.seed,
        )

    @property
    def select(self) -> str:
        """The measure on the held-out questions: the agreement of the exits with the model's own order."""
        return "agreement"

    @property
    def recipe(self) -> None:
        """There are no recipes."""

    @property
    def work(self) -> Path:
        """The folder of the run, which may be removed after it."""
        return self.out.with_name(f"{self.out.name}.work")


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerated:
    """A checkpoint with exits and a drop schedule."""

    checkpoint: Path
    tuning: Tuning
    """As of `tune`, against the model's own ranking."""
    forms: Mapping[str, FormAgreement]
    """The agreement of the weights and of each ONNX form, with the schedule, with the model's own ranking."""


@dataclass(frozen=True)
class ExitsJob(Job[AccelerateOptions]):
    """The training of exits on a ranker's own scores, in OUT.work."""

    verb = "accelerate"
    result_name = "exits.safetensors"
    checkpoint: Checkpoint

    @property
    def out(self) -> Path:
        """The folder of the run."""
        return self.options.work

    @property
    def batch_workers(self) -> int:
        """None by default: a batch is read from a file, and a process would only copy it."""
        return self.options.run.workers or 0

    @cached_property
    def ranker(self) -> RankingNetwork:
        """The network, with new exits until they are trained."""
        return _with_untrained_exits(self.checkpoint, self.options)

    @cached_property
    def exits(self) -> Exits:
        """The exits of the ranker that are new."""
        return Exits([cast(Exit, exit_) for exit_ in self.ranker.exits][: len(self.ranker.config.stages) - 1])

    @cached_property
    def questions(self) -> Sequence[Question]:
        """The questions to train on, and after them those to choose the schedule by."""
        return unlabelled(self.options.data)

    @property
    def start(self) -> int:
        """The number of the first question that is held out. Raises ValueError if there are too few of either."""
        options, start = self.options, len(self.questions) - self.options.held_out
        if min(start, options.held_out) < LEAST:
            raise ValueError(
                f"--held-out {options.held_out} of {len(self.questions)} questions leaves {start} to train on: "
                f"there must be at least {LEAST} of either"
            )
        return start

    @cached_property
    def states(self) -> ExitInputs:
        """The states that exits read, which are computed once and kept, because the body does not change."""
        options = self.options
        body = FrozenBody.of(self.ranker, device=options.run.place, precision=options.precision)
        Bound(self.out, self._read()).begin()
        return compute_states(self.out, body, self.checkpoint.encoder(), self.questions)

    def _read(self) -> dict[str, Any]:
        """All that determines the states."""
        return {
            "checkpoint": files_revision([self.checkpoint.path / MANIFEST]),
            "exits": [exit_.model_dump() for exit_ in self.ranker.config.exits],
            "precision": self.options.precision,
            "questions": unlabelled_content(self.options.data, self.questions),
        }

    @cached_property
    def base(self) -> Base:
        """The ranker."""
        path = self.checkpoint.path
        return Base(place=str(path), folder=path, name=path.resolve().name, checkpoint=self.checkpoint)

    @cached_property
    def config(self) -> TrainConfig:
        """The settings of the loop."""
        return self.options.training.resolved(self.start)

    @property
    def bound(self) -> dict[str, Any]:
        """All that determines the states, the questions that are held out, and the settings."""
        more = {"held_out": self.options.held_out, "settings": self.config.bound}
        return self._read() | more

    @property
    def names(self) -> dict[str, str | None]:
        """The name of the questions."""
        return {"train": self.options.data}

    @cached_property
    def learner(self) -> Learner[Exits, int, StateBatch]:
        """The exits, and the states that they read."""
        return exits_learner(self.exits, self.states, self.start, self.config)

    @property
    def measure(self) -> Callable[[Exits], dict[str, float]]:
        """The agreement of the exits with the model's own order."""
        return partial(exits_agreement, inputs=self.states, questions=self.questions, start=self.start)

    @property
    def start_lines(self) -> Sequence[str]:
        """A warning of questions that the ranker was trained on."""
        warning = unlabelled_trained_on(self.checkpoint.path, self.options.data, self.questions)
        return (f"--data: {warning}" if warning else "",)

    def write(self, record: RunRecord) -> None:
        """Write the weights of the exits."""
        with replacing(self.result) as file:
            file.write(save(self.exits.cpu().state_dict()))


def accelerate(checkpoint: Path, /, *, options: AccelerateOptions) -> Accelerated:
    """Give a checkpoint exits and a drop schedule from its own scores; labels are not needed.

    The body and the final scores do not change. Exits are trained on hidden states that are computed once and
    kept in OUT.work; the schedule, with the share of the lexical layer, is tuned on questions that they were not
    trained on, against the model's own ranking. A killed run continues when the command is repeated.
    `latency_target_ms` and deadlines work for the new checkpoint. An opaque graph gets the share of the lexical layer
    alone.

    Args:
        checkpoint: Checkpoint folder.
        options: Options.
    """
    if options.out.exists():
        raise FileExistsError(f"{options.out} exists; a checkpoint is never overwritten")
    if unknown := set(options.forms) - set(PARITY):
        raise UsageError(f"--forms are of {', '.join(PARITY)}, not {', '.join(sorted(unknown))}.")
    if launched_processes() > 1:
        raise UsageError("train accelerate runs in one process, without torchrun.")
    options.run.check(options.training)
    opened = read_checkpoint(checkpoint)
    if isinstance(opened.config.transformer, OpaqueTransformer):
        return _opaque(opened, options)
    # 1. Exits learn the model's own scores, in OUT.work.
    job = ExitsJob(options, opened)
    run_job(job)
    source, ranker, questions, start = job.checkpoint, job.ranker, job.questions, job.start
    exits = job.exits
    exits.load_state_dict(load_file(job.result))
    held_out = list(held_out_scores(exits.eval(), job.states, questions, source.encoder(), start=start))
    # 2. The schedule is chosen by the model's own ranking, among those that the gate of the forms accepts.
    tuning, checked = _tuned(ranker.config, held_out, options)
    policy = tuning.default.policy
    # 3. The checkpoint; each of its forms is measured with the schedule.
    ranker.config = _with_schedule(ranker.config, tuning)
    learnt = f"Exits by `train accelerate`: they learned this model's own scores on {start} questions without labels. "
    text = _report(tuning, held_out, learnt)
    say(text)

    forms: dict[str, FormAgreement] = {}

    def accept(precision: str, form: Backend[Any]) -> None:
        figures = measure_form(form, source.encoder(), checked, policy)
        say(f"{precision}: {figures}")
        forms[precision] = figures
        try:
            figures.check(precision, options.min_agreement)
        except GateError as error:
            again = "a smaller --max-loss or a larger --max-cost"
            raise GateError(f"{error}; repeat with {again}, which takes little time while {job.out} is kept") from error

    accept("weights", TorchBackend(ranker))
    export_checkpoint(
        ranker,
        Tokenizer.from_file(str(source.path / "tokenizer.json")),
        options.out,
        card=with_section((source.path / "README.md").read_text(encoding="utf-8"), SECTION, text),
        version=options.version or f"{source.manifest.version}-accelerated",
        source=source.manifest.source,
        metrics=source.manifest.metrics,
        forms=Forms(
            precisions=options.forms,
            calibration=calibration_texts(questions[:start], seed=options.seed),
            accept=accept,
        ),
        files={RUN: source.path / RUN} if RUN in source.manifest.files else {},
    )
    say(f"{options.out} is written; {job.out} may be removed")
    return Accelerated(checkpoint=options.out, tuning=tuning, forms=forms)


def _opaque(checkpoint: Checkpoint, options: AccelerateOptions) -> Accelerated:
    """The share of the lexical layer alone, for a graph that cannot get exits."""
    questions = unlabelled(options.data)[-options.held_out :]
    if len(questions) < LEAST:
        raise ValueError(f"--data has {len(questions)} questions: there must be at least {LEAST}")
    form = BackendOptions(device=options.run.place).chosen(checkpoint)
    scored = score_questions(Scorer.open(checkpoint, **asdict(form), windowing=None), questions)
    held_out = list(progress(scored, total=len(questions), unit="question", desc="score"))
    tuning, checked = _tuned(checkpoint.config, held_out, options)
    text = _report(tuning, held_out, "The lexical layer's share by `train accelerate`. ")
    say(text)
    revise_checkpoint(
        checkpoint,
        options.out,
        version=options.version or f"{checkpoint.manifest.version}-accelerated",
        config=_with_schedule(checkpoint.config, tuning),
        card=with_section((checkpoint.path / "README.md").read_text(encoding="utf-8"), SECTION, text),
    )
    top1 = same_first_share(checked, tuning.default.policy)
    say(f"{options.out} is written; it keeps the first candidate of {top1:.1f} % of {len(checked)} questions")
    return Accelerated(checkpoint=options.out, tuning=tuning, forms={})


def _tuned(
    config: RankerConfig, held_out: list[tuple[Question, AllScores]], options: AccelerateOptions
) -> tuple[Tuning, list[tuple[Question, AllScores]]]:
    """The schedule by the model's own ranking, and the questions that check it."""
    dev = DevSets(config.stage_layers, {"held out": held_out}, minimum=options.minimum, reference=AgainstOwnRanking())
    max_loss = 3.0 if options.max_loss is None and options.max_cost is None else options.max_loss
    bounds = TuningBounds(max_loss=max_loss, max_cost=options.max_cost, least={"top1_agreement": options.min_agreement})
    tuning = tune(dev, bounds)
    check_drops(tuning)
    checked = random.Random(0).sample(held_out, min(options.gate_questions, len(held_out)))
    return within_gate(tuning, bounds, checked, least=options.min_agreement), checked


def _with_schedule(config: RankerConfig, tuning: Tuning) -> RankerConfig:
    policy = tuning.default.policy
    return config.model_copy(
        update={
            "drop_schedule": policy.ratios,
            "lexical_ratio": policy.lexical,
            "drop_minimum": policy.minimum,
            "longer_lists": (),
            "tuned_schedules": tuning.menu,
        }
    )


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
        given = ",".join(map(str, places))
        raise ValueError(f"--exits {given} must come after distinct, ascending body layers 1..{most}")
    # Exits of a decoder read its last token alone.
    decodes = source.config.body.decoder is not None
    pooling, features = options.pooling or ("last" if decodes else "mean"), options.token_features
    if features is None:
        features = 0 if decodes else TOKEN_FEATURES
    exits = [ExitConfig(after=place, pooling=pooling, token_features=features) for place in places]
    return with_exits(source, exits, seed=options.seed)


def _report(tuning: Tuning, held_out: Sequence[tuple[Question, AllScores]], origin: str) -> str:
    candidates = fmean(len(question.candidates) for question, _ in held_out)
    return (
        f"{tuning.table(TITLES)}\n\n{origin}The schedules were chosen on {len(held_out)} others, "
        f"{candidates:.1f} candidates each, against the model's own ranking of all candidates: whether its first is "
        "still first, and how many of its first five are still among the first five; agreement is the mean of both. "
        "Expect a little less on other questions."
    )
