"""`cerberank train teach`: a teacher from a Hugging Face sequence classifier (TANDA)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from cyclopts import App, Group, Parameter
from cyclopts.validators import Number

from cerberank_models.commands.values import Count, NotNegative, Positive, Whole, at_least
from cerberank_models.convert.teacher_input import FILE, TeacherInput
from cerberank_models.output import UsageError, say
from cerberank_training.commands.presets import options_from_recipe, recipe_help
from cerberank_training.commands.run_options import DevQuestions, TrainerDevice, data_help
from cerberank_training.data import Question, open_questions
from cerberank_training.data.question_table import QuestionTable
from cerberank_training.data.sampling import (
    LOOKED_AT,
    NegativeSampling,
    PairSampler,
    PairSampling,
    Sampler,
    Sampling,
    cut_note,
    first_sizes,
    sampler_for,
)
from cerberank_training.learning.trainer import history, last_checkpoint
from cerberank_training.runs.base import Base, open_hugging_face_base
from cerberank_training.runs.dev_set import chosen_size, dev_set, held_out_contents, in_common, measured
from cerberank_training.runs.launched import is_first_process, note_of
from cerberank_training.runs.options import named_options
from cerberank_training.runs.processes import batch_of_step, check_trainer_device
from cerberank_training.runs.record import RunRecord, read_record, said_of_results
from cerberank_training.runs.run import run_job
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
    steps: Annotated[int | None, at_least(1), Parameter(help=f"Training steps (default: {STEPS}).")] = None
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
    results = run_job(TeacherJob(options))
    if not is_first_process():
        return
    say(f"{options.out}: on {options.dev}, best dev MAP {results['best']:.2f}{said_of_results(results)}")
    note_of(
        "teach",
        f"next: cerberank data score CACHE --teacher {options.out} --data FORMAT:PATH, cerberank import "
        f"{options.out} CHECKPOINT, or cerberank train distil --base {options.out}",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherInputs:
    """What a teacher starts and learns from."""

    base: Base
    config: TeacherConfig
    """The settings with the number of steps, which `--epochs` gives in passes over the data."""
    questions: QuestionTable
    sampler: Sampler | PairSampler
    dev: Sequence[Question]
    bound: Mapping[str, Any]
    free: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TeacherJob:
    """The fine-tuning of a teacher."""

    verb: ClassVar[str] = "teach"
    options: TeachOptions

    @property
    def out(self) -> Path:
        """The folder of the run, which is that of the teacher."""
        return self.options.out

    @property
    def result(self) -> Path:
        """The last file of the teacher."""
        return self.out / FILE

    @property
    def is_saved(self) -> bool:
        """True if the Trainer has saved a checkpoint."""
        return last_checkpoint(self.out / RUN) is not None

    def check(self) -> None:
        """Raise ValueError, which names the option."""
        options = self.options
        if options.training.epochs is not None and options.training.steps is not None:
            raise UsageError("--steps and --epochs are two lengths of a run: give one.")
        _sampling(options)
        configuration(options)
        chosen_size(options.dev, options.dev_questions)
        check_trainer_device(options.device, options.training.precision)

    def open(self) -> TeacherInputs:
        """Open the base and the questions to train on and to choose by."""
        options, sampling = self.options, _sampling(self.options)
        size = chosen_size(options.dev, options.dev_questions)
        base = open_hugging_face_base(options.base, reason="teachers are Hugging Face classifiers")
        base.check_room(options.texts.max_length)
        base_content = base.content()
        dev = dev_set(options.dev, size)
        questions = open_questions(options.train, training=True)
        config = configuration(options)
        sampler = sampler_for(options.train, questions, sampling, seed=config.seed)
        if (epochs := options.training.epochs) is not None:
            config = configuration(options, math.ceil(epochs * len(sampler) / config.questions_per_step))
        content, dev_content = held_out_contents(options.train, questions, options.dev, dev)
        bound, free = config.settings()
        names = {"train": options.train, "dev": options.dev, "out": str(options.out)}
        return TeacherInputs(
            base=base,
            config=config,
            questions=questions,
            sampler=sampler,
            dev=dev,
            bound={
                "base": base_content,
                "data": content,
                "dev": {"size": size} | dev_content,
                "sampling": {"mode": options.sampling.sampling} | asdict(sampling),
                "settings": bound | {"input": config.input.model_dump()},
            },
            free=free
            | {"recipe": options.recipe}
            | {"names": names | {"base": base.name, "place": base.place, "commit": base.commit}},
        )

    def check_finished(self, record: RunRecord) -> None:
        """Say that nothing is left to train."""
        note_of(self.verb, f"{self.out} is finished; more --steps extend it")

    def prepare(self, inputs: TeacherInputs, record: RunRecord) -> TeacherTraining:
        """Take the steps of the first call. The Trainer loads the network."""
        config = replace(inputs.config, planned=record.planned["steps"])
        return TeacherTraining(out=self.out, inputs=inputs, config=config, record=record)


@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherTraining:
    """A teacher's fine-tuning, ready to begin."""

    out: Path
    inputs: TeacherInputs
    config: TeacherConfig
    record: RunRecord

    @property
    def lines(self) -> Sequence[str]:
        """Lines on dev questions that are trained on, and on the start and the first step."""
        base, size, sampler = self.inputs.base, self.config.questions_per_step, self.inputs.sampler
        own = "" if base.is_cross_encoder else ", and its classifier of two logits from random weights"
        start = f"starts from {base.place}, {base.kind}{own}"
        groups = [sampler.step(each, 1)[0] for each in range(max(LOOKED_AT, size))]
        reader = TeacherReader(base.tokenizer(), base.described, self.config.input)
        cuts = cut_note(*reader.count_cut(groups), what="pairs", option="--max-length")
        shared = in_common(self.inputs.dev, self.inputs.questions.question_texts())
        return shared, "; ".join(filter(None, (start, first_sizes(groups[:size]), cuts)))

    def train(self) -> dict[str, Any]:
        """Fine-tune, and write the weights that are best on dev."""
        inputs = self.inputs
        write_training_data(self.out, self.record, base=inputs.base.folder)
        best = fine_tune(inputs.base, self.out, inputs.sampler, inputs.dev, self.config)
        return {"best": best, "questions": measured(inputs.dev)}

    def history(self) -> dict[str, Any]:
        """The last step, the best step and the dev figure at the start, from the Trainer's newest checkpoint."""
        return history(self.out / RUN)

    def write(self, record: RunRecord) -> None:
        """Write the tokenizer and what the teacher reads beside its weights."""
        self.inputs.base.tokenizer().save_pretrained(self.out)
        self.config.input.write(self.out)


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


def configuration(options: TeachOptions, steps: int | None = None) -> TeacherConfig:
    """The settings of the run. Raises ValueError, which names the option.

    `steps` is the number that `--epochs` gives; before it is known, the others are checked with one that fits them all.
    """
    steps = steps or options.training.steps or (STEPS if options.training.epochs is None else ANY_STEPS)
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
