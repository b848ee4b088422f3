"""`cerberank train teach`: a teacher from a Hugging Face sequence classifier (TANDA)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from cerberank_models.commands.values import Positive, at_least
from cerberank_models.convert.teacher_input import FILE
from cerberank_models.output import UsageError, say
from cerberank_training.commands.presets import RECIPE_HELP, options_from_recipe
from cerberank_training.commands.run_options import DataSpec, DevQuestions, data_help
from cerberank_training.data import Question, open_questions
from cerberank_training.data.question_table import QuestionTable
from cerberank_training.data.sampling import (
    LOOKED_AT,
    PairSampler,
    Sampler,
    cut_note,
    first_sizes,
    sampler_for,
)
from cerberank_training.learning.example_options import ExampleOptions
from cerberank_training.learning.trainer import last_checkpoint, results_of_trainer
from cerberank_training.runs.base import open_hugging_face_base
from cerberank_training.runs.dev_set import chosen_size, dev_set, held_out_contents, in_common, measured
from cerberank_training.runs.launched import is_first_process, note_of
from cerberank_training.runs.processes import batch_of_step, check_trainer_device
from cerberank_training.runs.record import RunRecord, read_record, results_suffix
from cerberank_training.runs.run import Inputs, Job, run_job
from cerberank_training.runs.trained_on import write_training_data
from cerberank_training.teachers.fine_tuning import ANY_STEPS, TeacherConfig, fine_tune
from cerberank_training.teachers.teacher_reader import TeacherReader
from cerberank_training.tracking.trained import Trained

STEPS = 20_000
RUN = "run"
"""The Trainer's folder within the teacher's."""
TRAINING = Group("Training (the rate rises in the warm-up, then falls linearly to 0)", sort_key=1)


@Parameter(name="*", group=TRAINING)
@dataclass(frozen=True, kw_only=True)
class LengthOptions:
    """The length of a run, which may follow from its data."""

    steps: Annotated[int | None, at_least(1), Parameter(help=f"Training steps (default: {STEPS}).")] = None
    epochs: Positive | None = None
    """Number of passes over all questions or pairs, instead of --steps."""
    evaluate_every: Positive | None = None
    """Steps between two evaluations on dev; a number below 1 is a share of all steps (default: 250, at most all)."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TeachOptions:
    """The options of `train teach`."""

    recipe: Annotated[str | None, Parameter(help=RECIPE_HELP)] = None
    base: str
    """Path or hub id of an encoder, or of a teacher to adapt."""
    train: Annotated[DataSpec, Parameter(help=data_help("Questions to train on"))]
    dev: DataSpec
    """Questions to choose weights by, as FORMAT:PATH."""
    dev_questions: DevQuestions = None
    out: Path
    """Folder of the teacher."""
    examples: ExampleOptions = field(default_factory=ExampleOptions)
    length: LengthOptions = field(default_factory=LengthOptions)
    training: Annotated[TeacherConfig, Parameter(group=TRAINING)] = field(default_factory=TeacherConfig)


app = App(config=options_from_recipe("teach"))


@app.default
def teach(*, options: TeachOptions) -> Trained:
    """Fine-tune a Hugging Face sequence classifier into a teacher.

    TANDA is two calls: transfer on a large set, then adapt the result to the target set. A killed run continues when
    the command is repeated. Several GPUs: `torchrun --nproc-per-node 4 --no-python cerberank train teach ...`.

    Args:
        options: Options.
    """
    results = run_job(TeacherJob(options))
    trained = Trained.of(options.out, results, out=options.out)
    if not is_first_process():
        return trained
    say(f"{options.out}: on {options.dev}, best dev MAP {results['best']:.2f}{results_suffix(results)}")
    note_of(
        "teach",
        f"next: cerberank data score CACHE --teacher {options.out} --data FORMAT:PATH, cerberank import "
        f"{options.out} CHECKPOINT, or cerberank train distil --base {options.out}",
    )
    return trained


@dataclass(frozen=True, kw_only=True)
class TeacherInputs(Inputs):
    """The base and the data of a teacher."""

    config: TeacherConfig
    """The settings with the number of steps, which `--epochs` gives in passes over the data."""
    questions: QuestionTable
    sampler: Sampler | PairSampler
    dev: Sequence[Question]


class TeacherJob(Job[TeachOptions, TeacherInputs]):
    """The fine-tuning of a teacher."""

    verb = "teach"
    result_name = FILE

    @property
    def is_saved(self) -> bool:
        """True if the Trainer has saved a checkpoint."""
        return last_checkpoint(self.out / RUN) is not None

    def check(self) -> None:
        """Raise ValueError, which names the option."""
        options = self.options
        if options.length.epochs is not None and options.length.steps is not None:
            raise UsageError("--steps and --epochs are two lengths of a run: give one.")
        loss = options.training.loss
        if options.examples.sampling == "pairs" and loss != "pointwise":
            raise UsageError(f"--loss {loss} compares a question's candidates, which --sampling pairs does not draw.")
        batch_of_step(options.training.examples_per_step, options.training.accumulate)
        configuration(options)
        chosen_size(options.dev, options.dev_questions)
        check_trainer_device(options.training.device, options.training.precision)

    def open(self) -> TeacherInputs:
        """Open the base and the questions to train on and to choose by."""
        options, sampling = self.options, self.options.examples.chosen()
        size = chosen_size(options.dev, options.dev_questions)
        # A base with too few positions is refused before any data are read.
        base = open_hugging_face_base(options.base, reason="teachers are Hugging Face classifiers")
        base.check_room(options.training.max_length)
        base_content = base.content()
        # The number of steps follows from the data if it is given in epochs.
        dev = dev_set(options.dev, size)
        questions = open_questions(options.train, training=True)
        config = configuration(options)
        sampler = sampler_for(options.train, questions, sampling, seed=config.seed)
        if (epochs := options.length.epochs) is not None:
            config = configuration(options, math.ceil(epochs * len(sampler) / config.examples_per_step))
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
                "sampling": {"mode": options.examples.sampling} | asdict(sampling),
                "settings": bound,
            },
            free=free
            | {"recipe": options.recipe}
            | {"names": names | {"base": base.name, "place": base.place, "commit": base.commit}},
        )

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
    def start_lines(self) -> Sequence[str]:
        """Lines on dev questions that are trained on, and on the start and the first step."""
        base, size, sampler = self.inputs.base, self.config.examples_per_step, self.inputs.sampler
        new_head = "" if base.is_cross_encoder else ", and its classifier of two logits from random weights"
        start = f"starts from {base.place}, {base.kind}{new_head}"
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

    def further_results(self) -> dict[str, Any]:
        """The last step, the best step and the dev figure at the start, from the Trainer's newest checkpoint."""
        return results_of_trainer(self.out / RUN)

    def write(self, record: RunRecord) -> None:
        """Write the tokenizer and what the teacher reads beside its weights."""
        self.inputs.base.tokenizer().save_pretrained(self.out)
        self.config.input.write(self.out)


def configuration(options: TeachOptions, steps: int | None = None) -> TeacherConfig:
    """The settings of the run. Raises ValueError, which names the option.

    `steps` is the number that `--epochs` gives; before it is known, the others are checked with one that fits them all.
    """
    length = options.length
    steps = steps or length.steps or (STEPS if length.epochs is None else ANY_STEPS)
    return replace(options.training, steps=steps, evaluate_every=_evaluate_every(options, steps))


def _evaluate_every(options: TeachOptions, steps: int) -> int:
    """The option, or else the steps that the run in the folder was begun with, or 250, or all of fewer."""
    every = options.length.evaluate_every
    if every is not None:
        if every > 1 and every != int(every):
            raise UsageError(f"--evaluate-every is {every:g}: take a whole number of steps, or a share below 1.")
        # Rounded down: the last share ends with the run, and not a step behind it, where nothing would be evaluated.
        return max(1, int(round(every * steps, 6))) if every < 1 else int(every)
    record = read_record(options.out)
    if record is None or record.verb != "teach":
        return min(250, steps)
    return int(record.bound["settings"]["evaluate_every"])
