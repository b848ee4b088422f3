"""The training of a teacher from a Hugging Face sequence classifier, which `train teach` runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from cerberank_models.convert.loading import quiet_transformers
from cerberank_models.convert.teacher_input import FILE
from cerberank_models.output import UsageError, say
from cerberank_training.data import Question, check_named, open_questions
from cerberank_training.data.question_table import QuestionTable
from cerberank_training.data.sampling import (
    LOOKED_AT,
    PairSampler,
    Sampler,
    cut_note,
    first_sizes,
    sampler_for,
)
from cerberank_training.evaluation.dev_figures import RankingTraining, dev_figures
from cerberank_training.evaluation.question_metrics import TITLES
from cerberank_training.runner.run import Inputs, Job, run_job
from cerberank_training.runs.base import open_hugging_face_base
from cerberank_training.runs.dev_set import (
    chosen_size,
    dev_set,
    figure_name,
    held_out_contents,
    in_common,
    selected,
)
from cerberank_training.runs.launched import is_first_process, note_of
from cerberank_training.runs.record import RunRecord, results_suffix
from cerberank_training.teachers.fine_tuning import classifier, teacher_learner, teacher_ranks
from cerberank_training.teachers.teach_options import TeacherConfig, TeachOptions
from cerberank_training.teachers.teacher_reader import TeacherReader
from cerberank_training.tracking.trained import Trained


def train_teacher(options: TeachOptions) -> Trained:
    """Train by the options and write the teacher, or say that this was done."""
    job = TeacherJob(options)
    results = run_job(job)
    trained = Trained.of(options.out, results, out=options.out, figure=job.dev_name)
    if not is_first_process():
        return trained
    best = f"best dev {TITLES[options.select]} {results['best']:.2f}{results_suffix(results)}"
    say(f"{options.out}: on {options.dev}, {best}")
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
    questions: QuestionTable
    sampler: Sampler | PairSampler
    dev: Sequence[Question]


class TeacherJob(Job[TeachOptions, TeacherInputs]):
    """The fine-tuning of a teacher."""

    verb = "teach"
    result_name = FILE

    @property
    def dev_name(self) -> str:
        """The log's name of the metric that chooses the weights."""
        return figure_name(self.options.select)

    def check_own(self) -> None:
        """Raise ValueError, which names the option."""
        options, loss = self.options, self.options.training.loss
        if options.examples.sampling == "pairs" and loss != "pointwise":
            raise UsageError(f"--loss {loss} compares a question's candidates, which --sampling pairs does not draw.")
        chosen_size(options.dev, options.dev_questions)
        check_named(options.train)
        check_named(options.dev)

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
        sampler = sampler_for(options.train, questions, sampling, seed=options.training.seed)
        config = options.training.resolved(len(sampler))
        content, dev_content = held_out_contents(options.train, questions, options.dev, dev)
        return TeacherInputs(
            base=base,
            config=config,
            questions=questions,
            sampler=sampler,
            dev=dev,
            bound={
                "base": base_content,
                "data": content,
                "dev": {"size": size} | selected(options.select) | dev_content,
                "sampling": {"mode": options.examples.sampling} | asdict(sampling),
                "settings": config.bound,
            },
            names={"train": options.train, "dev": options.dev},
            recipe=options.recipe,
        )

    def prepare(self, inputs: TeacherInputs, record: RunRecord) -> TeacherTraining:
        """Load the network."""
        base, config, sampler = inputs.base, inputs.config, inputs.sampler
        model = classifier(base, config)
        reader = TeacherReader(base.tokenizer(), model.config, config.input)
        rank = teacher_ranks(reader, self.options.run.place, config.precision)
        # Lines on dev questions that are trained on, and on the start and the first step.
        new_head = "" if base.is_cross_encoder else ", and its classifier of two logits from random weights"
        groups = [sampler.step(each, 1)[0] for each in range(LOOKED_AT)]
        start = (
            f"starts from {base.place}, {base.kind}{new_head}",
            first_sizes(sampler.step(0, config.examples_per_step)),
            cut_note(*reader.count_cut(groups), what="pairs", option="--max-length"),
        )
        return TeacherTraining(
            learner=teacher_learner(model, reader, sampler, config),
            measure=dev_figures(rank, inputs.dev, self.options.select),
            start_lines=(in_common(inputs.dev, inputs.questions.question_texts()), "; ".join(filter(None, start))),
            dev=inputs.dev,
            job=self,
            inputs=inputs,
        )


@dataclass(frozen=True, kw_only=True)
class TeacherTraining(RankingTraining):
    """A teacher, and what it learns from."""

    job: TeacherJob
    inputs: TeacherInputs

    def write(self, record: RunRecord) -> None:
        """Write a folder that Hugging Face's classes load, with the rules of what the teacher reads."""
        with quiet_transformers():
            self.learner.network.save_pretrained(self.job.out)
        self.inputs.base.tokenizer().save_pretrained(self.job.out)
        self.inputs.config.input.write(self.job.out)
