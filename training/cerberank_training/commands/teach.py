"""`cerberank train teach`: a teacher from a Hugging Face sequence classifier (TANDA)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Group, Parameter
from cyclopts.validators import Number

from cerberank_models.commands.values import Count, NotNegative, Positive, Whole, whole
from cerberank_models.convert.teacher_input import FILE, TeacherInput
from cerberank_models.output import UsageError, say
from cerberank_training.commands.presets import options_from_recipe, recipe_help
from cerberank_training.commands.run_options import DevQuestions, TrainerDevice, data_help
from cerberank_training.data import open_questions
from cerberank_training.data.sampling import (
    LOOKED_AT,
    NegativeSampling,
    PairSampling,
    Sampling,
    first_sizes,
    said_of_cuts,
    sampler_for,
)
from cerberank_training.learning.processes import batch_of_step, check_trainer_device, leave_group
from cerberank_training.learning.trainer import best_step, dev_at_start, last_checkpoint
from cerberank_training.runs.base import open_hugging_face_base
from cerberank_training.runs.content import data_content
from cerberank_training.runs.dev_set import check_held_out, chosen_size, dev_set, in_common, measured
from cerberank_training.runs.launched import is_first_process, note_of
from cerberank_training.runs.options import named_options
from cerberank_training.runs.place import check_writable, writing
from cerberank_training.runs.record import open_run, read_record, said_of_results
from cerberank_training.runs.trained_on import write_training_data
from cerberank_training.teachers.fine_tuning import TeacherConfig, fine_tune
from cerberank_training.teachers.teacher_reader import TeacherReader

STEPS = 20_000
ANY_STEPS = 10**9
"""Steps with which options are checked while the number is not known: more than any run has."""
RUN = "run"
"""The Trainer's folder within the teacher's."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Options of the text that a teacher reads."""

    context: bool = False
    """Read the previous and the next sentence too (SSP)."""
    token_types: Literal["shared", "fresh", "copied", "anew"] = "shared"
    """Token type of the context where the base has fewer than three: the last type (shared), a random row (fresh), a
    copy of the last row (copied), or a new random table (anew, as in SSP)."""
    max_length: Count = 128
    """Most tokens of a pair; the longest segments are cut."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Options of the examples that are drawn."""

    sampling: Literal["grouped", "pairs"] = "grouped"
    """Examples of a step: groups of a question's candidates, or every labelled pair once an epoch (papers)."""
    unanswered: Literal["keep", "drop"] | None = None
    """Questions without a positive in --sampling pairs: kept or left out (default: drop)."""
    own: Whole | None = None
    """Number of negatives of a group from the question's own candidates (default: 2)."""
    hard: Whole | None = None
    """Number of negatives that share rare words with the question; from the article if there is one (default: 2)."""
    random: Whole | None = None
    """Number of other negatives; from the article if there is one, else from the candidates (default: 1)."""


@Parameter(name="*", group=Group("Training (the rate rises in the warm-up, then falls linearly to 0)", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """Settings of the steps; where one is None, the default of `TeacherConfig` holds."""

    loss: Literal["pointwise", "listwise", "both"] | None = None
    """Loss: of each pair, between a question's candidates, or both (default: pointwise)."""
    steps: Annotated[int | None, whole(1), Parameter(help=f"Training steps (default: {STEPS}).")] = None
    epochs: Positive | None = None
    """Number of passes over all questions or pairs, instead of --steps."""
    questions_per_step: Count | None = None
    """Groups (with --sampling pairs: pairs) of a step, of all processes together (default: 8)."""
    accumulate: Count | None = None
    """Number of batches into which each process divides its part of a step (default: 1)."""
    learning_rate: Positive | None = None
    """Highest learning rate (default: 1e-5)."""
    warmup: NotNegative | None = None
    """Steps during which the learning rate rises; a number below 1 is a share of all steps (default: 0.05)."""
    weight_decay: NotNegative | None = None
    """Weight decay of AdamW (default: 0)."""
    clip: NotNegative | None = None
    """Largest norm of a step's gradients; 0 for none (default: 1)."""
    dropout: Annotated[float | None, Parameter(validator=Number(gte=0, lt=1))] = None
    """Dropout of hidden states and attention (default: the base's)."""
    precision: Literal["fp32", "bf16", "fp16"] = "bf16"
    """Precision of the forward pass in training."""
    gradient_checkpointing: bool = False
    """Compute layers again in the backward pass, which takes less memory and a third more work."""
    evaluate_every: Positive | None = None
    """Steps between two evaluations on dev; a number below 1 is a share of all steps (default: 250, at most all)."""
    patience: Count | None = None
    """Number of evaluations without a gain in dev MAP after which the run stops (default: 50)."""
    seed: Whole | None = None
    """Random seed (default: 1)."""


TEXTS, SAMPLING, TRAINING = TextOptions(), SamplingOptions(), StepOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TeachOptions:
    """The options of `train teach`."""

    recipe: Annotated[str | None, Parameter(help=recipe_help("teach"))] = None
    base: str
    """Path or hub id of an encoder, or of a teacher to adapt."""
    layers: Count | None = None
    """Number of the base's layers to use, counted from the first (default: all)."""
    train: Annotated[str, Parameter(help=data_help("Questions to train on"))]
    dev: str
    """Questions to choose weights by, as FORMAT:PATH."""
    dev_questions: DevQuestions = None
    out: Path
    """Folder of the teacher."""
    device: TrainerDevice = "auto"
    workers: Whole = 0
    """Processes that make batches ahead of the training; with 0 the training process makes them."""
    texts: TextOptions = TEXTS
    sampling: SamplingOptions = SAMPLING
    training: StepOptions = TRAINING


app = App(config=options_from_recipe("teach"))


@app.default
def teach(*, options: TeachOptions) -> None:
    """Fine-tune a Hugging Face sequence classifier into a teacher.

    TANDA is two calls: transfer on a large set, then adapt the result to the target set. A killed run continues when
    the command is repeated. Several GPUs: `torchrun --nproc-per-node 4 --no-python cerberank train teach ...`.

    Args:
        options: Options.
    """
    with writing(options.out):
        results = _teach(options)
    if not is_first_process():
        return
    say(f"{options.out}: on {options.dev}, best dev MAP {results['best']:.2f}{said_of_results(results)}")
    _say(
        f"next: cerberank data score CACHE --teacher {options.out} --data FORMAT:PATH, cerberank import "
        f"{options.out} CHECKPOINT, or cerberank train distil --base {options.out}"
    )


_say = partial(note_of, "teach")


def _teach(options: TeachOptions) -> Mapping[str, Any]:
    """Fine-tune as the options say; returns the results of the run's record, which only the first process knows.

    Raises ValueError, which names the option.
    """
    epochs = options.training.epochs
    if epochs is not None and options.training.steps is not None:
        raise UsageError("--steps and --epochs are two lengths of a run: give one.")
    sampling = _sampling(options)
    # Checked before any data are read, which may take minutes; the steps of --epochs are known only after that.
    config = configuration(options, options.training.steps or (STEPS if epochs is None else ANY_STEPS))
    size = chosen_size(options.dev, options.dev_questions)
    out: Path = options.out
    check_writable(out)
    check_trainer_device(options.device, options.training.precision)
    base = open_hugging_face_base(options.base, reason="teachers are Hugging Face classifiers")
    base.check_room(options.texts.max_length)
    base_content = base.content()
    dev = dev_set(options.dev, size)
    questions = open_questions(options.train, training=True)
    sampler = sampler_for(options.train, questions, sampling, seed=config.seed)
    if epochs is not None:
        config = configuration(options, math.ceil(epochs * len(sampler) / config.questions_per_step))
    content, dev_content = data_content(options.train, questions), data_content(options.dev, dev)
    check_held_out(options.dev, dev_content, train=options.train, train_content=content)
    bound, free = config.settings()
    run = open_run(
        out,
        "teach",
        result=out / FILE,
        is_saved=last_checkpoint(out / RUN) is not None,
        bound={
            "base": base_content,
            "data": content,
            "dev": {"size": size} | dev_content,
            "sampling": {"mode": options.sampling.sampling} | asdict(sampling),
            "settings": bound | {"input": config.input.model_dump()},
        },
        free=free
        | {"recipe": options.recipe}
        | {
            "names": {"train": options.train, "dev": options.dev, "out": str(out)}
            | {"base": base.name, "place": base.place, "commit": base.commit}
        },
    )
    record = run.record
    if run.is_finished:
        _say(f"{out} is finished; more --steps extend it")
        return record.results
    own = "" if base.is_cross_encoder else ", and its classifier of two logits from random weights"
    start = f"starts from {base.place}, {base.kind}{own}"
    groups = [sampler.step(each, 1)[0] for each in range(max(LOOKED_AT, config.questions_per_step))]
    reader = TeacherReader(base.tokenizer(), base.described, config.input)
    cuts = said_of_cuts(*reader.count_cut(groups), what="pairs", option="--max-length")
    run.begin(
        in_common(dev, questions.question_texts()),
        "; ".join(filter(None, (start, first_sizes(groups[: config.questions_per_step]), cuts))),
    )
    write_training_data(out, record, base=base.folder)
    config = replace(config, planned=record.planned["steps"])
    best = fine_tune(base, out, sampler, dev, config, further=bool(record.results))
    leave_group()
    if not is_first_process():  # on another machine it may not see the last files of the first one yet
        return {}
    return run.finish(
        reached=int(str(last_checkpoint(out / RUN)).rpartition("-")[2]),
        best=best,
        best_step=best_step(out / RUN),
        start=dev_at_start(out / RUN),
        questions=measured(dev),
    ).results


def _sampling(options: TeachOptions) -> Sampling:
    """The sampling of the run. Raises UsageError for options that do not go with it."""
    drawn, loss = options.sampling, options.training.loss
    negatives = {name: value for name in ("own", "hard", "random") if (value := getattr(drawn, name)) is not None}
    if drawn.sampling == "pairs":
        if negatives:
            raise UsageError(
                f"--{next(iter(negatives))} is for --sampling grouped: pairs are drawn whatever their question."
            )
        if loss not in (None, "pointwise"):
            raise UsageError(f"--loss {loss} compares a question's candidates, which --sampling pairs does not draw.")
        return PairSampling(unanswered=drawn.unanswered == "keep")
    if drawn.unanswered is not None:
        raise UsageError("--unanswered is for --sampling pairs: a group begins with a positive.")
    return NegativeSampling(**negatives)


def configuration(options: TeachOptions, steps: int) -> TeacherConfig:
    """The settings of the run. Raises ValueError, which names the option."""
    names = {each.name for each in fields(TeacherConfig)}
    changes = {
        name: value
        for part in (options.texts, options.training)
        for name, value in vars(part).items()
        if name in names and value is not None
    }
    changes |= {
        "steps": steps,
        "evaluate_every": _evaluate_every(options, steps),
        "layers": options.layers,
        "input": TeacherInput(max_length=options.texts.max_length, context=options.texts.context),
        "device": options.device,
        "workers": options.workers,
    }
    with named_options({*changes, "max_length"}):
        config = TeacherConfig(**changes)
        batch_of_step(config.questions_per_step, config.accumulate)
        return config


def _evaluate_every(options: TeachOptions, steps: int) -> int:
    """The option, or else the steps that the run in the folder was begun with, or 250, or all of fewer."""
    every = options.training.evaluate_every
    if every is not None:
        if every > 1 and every != int(every):
            raise UsageError(f"--evaluate-every is {every:g}: take a whole number of steps, or a share below 1.")
        # Rounded down: the last share ends with the run, and not a step behind it, where nothing would be evaluated.
        return max(1, int(round(every * steps, 6))) if every < 1 else int(every)
    have = read_record(options.out)
    return min(250, steps) if have is None or have.verb != "teach" else int(have.bound["settings"]["evaluate_every"])
