"""The training of a teacher from any Hugging Face sequence classifier, which `train teach` runs.

TANDA takes two calls: the first transfers a base on a large set, and the second adapts the result to the target set.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, set_seed

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.loading import quiet_transformers
from cerberank_models.convert.teacher_input import FILE
from cerberank_models.convert.token_types import grow_token_types
from cerberank_models.output import UsageError, say
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_training.data import Question
from cerberank_training.data.sampling import (
    LOOKED_AT,
    Group,
    PairSampler,
    Sampler,
    cut_note,
    first_sizes,
    sampler_for,
)
from cerberank_training.evaluation.dev_figures import RankedQuestions, RankingJob
from cerberank_training.evaluation.question_metrics import TITLES, ranks_of
from cerberank_training.learning.batch import moved
from cerberank_training.learning.losses import listwise_loss, pointwise_loss
from cerberank_training.learning.settings import TeacherConfig, TeachOptions
from cerberank_training.runs.base import Base, open_hugging_face_base
from cerberank_training.runs.computing import autocast, hugging_face_layers
from cerberank_training.runs.loop import EqualSteps, Learner, Losses, Source
from cerberank_training.runs.record import RunRecord, results_suffix
from cerberank_training.runs.settings import Precision
from cerberank_training.teachers.scoring.hugging_face import differences, logit_difference
from cerberank_training.teachers.teacher_reader import TeacherReader

DROPOUT = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "classifier_dropout_prob"),
    *("dropout", "attention_dropout", "seq_classif_dropout", "embedding_dropout", "mlp_dropout"),
)
"""The names of dropout probabilities in transformers' configurations."""
TOGETHER = 500
"""The number of dev questions that are tokenised together, and scored in batches of similar length."""
BATCH_TOKENS = 8192
"""The most tokens of a batch of dev pairs, padding included."""


class TeacherJob(RankingJob[TeachOptions]):
    """The fine-tuning of a teacher."""

    verb = "teach"
    result_name = FILE

    def check(self) -> None:
        """Raise ValueError, which names the option."""
        options, loss = self.options, self.options.training.loss
        if options.examples.sampling == "pairs" and loss != "pointwise":
            raise UsageError(f"--loss {loss} compares a question's candidates, which --sampling pairs does not draw.")
        super().check()

    @cached_property
    def base(self) -> Base:
        """The encoder or classifier. A base with too few positions is refused before any data are read."""
        base = open_hugging_face_base(self.options.base, reason="teachers are Hugging Face classifiers")
        base.check_room(self.options.training.max_length)
        return base

    @cached_property
    def groups(self) -> Sampler | PairSampler:
        """The groups of questions' candidates."""
        options = self.options
        return sampler_for(options.train, self.data.questions, options.examples, seed=options.training.seed)

    @cached_property
    def config(self) -> TeacherConfig:
        """The settings of the loop."""
        return self.options.training.resolved(len(self.groups))

    @property
    def bound(self) -> dict[str, Any]:
        """The content of base and data, and the settings."""
        return {
            "base": self.base.content(),
            **self.data.bound,
            "examples": asdict(self.options.examples),
            "settings": self.config.bound,
        }

    @cached_property
    def model(self) -> Any:
        """The classifier."""
        return classifier(self.base, self.config)

    @cached_property
    def reader(self) -> TeacherReader:
        """The encoder of pairs."""
        return TeacherReader(self.base.tokenizer(), self.model.config, self.config.input)

    @cached_property
    def learner(self) -> Learner[Any, Group, TeacherBatch]:
        """The classifier, and the groups that it learns from."""
        return teacher_learner(self.model, self.reader, self.groups, self.config)

    @property
    def ranks(self) -> Callable[[Any, Sequence[Question]], RankedQuestions]:
        """Ranks questions in the precision of the training."""
        return teacher_ranks(self.reader, self.options.run.place, self.config.precision)

    @property
    def start_lines(self) -> Sequence[str]:
        """Lines on dev questions that are trained on, and on the start and the first step."""
        base, groups = self.base, self.groups
        new_head = "" if base.is_cross_encoder else ", and its classifier of two logits from random weights"
        start = (
            f"starts from {base.place}, {base.kind}{new_head}",
            first_sizes(groups.step(0, self.config.examples_per_step)),
            cut_note(
                *self.reader.count_cut([groups.step(each, 1)[0] for each in range(LOOKED_AT)]),
                what="pairs",
                option="--max-length",
            ),
        )
        return (self.data.shared, "; ".join(filter(None, start)))

    def write(self, record: RunRecord) -> None:
        """Write a folder that Hugging Face's classes load, with the rules of what the teacher reads, and say so."""
        with quiet_transformers():
            self.model.save_pretrained(self.out)
        self.base.tokenizer().save_pretrained(self.out)
        self.config.input.write(self.out)
        best = f"best dev {TITLES[self.options.select]} {record.results['best']:.2f}{results_suffix(record)}"
        say(f"{self.out}: on {self.options.dev}, {best}")


@dataclass(frozen=True, slots=True)
class TeacherBatch:
    """Padded token ids of N pairs of Q questions, by the names of the model's arguments."""

    inputs: dict[str, Tensor]
    labels: Tensor
    """`[N]`, 0 or 1."""
    questions: Tensor
    """`[Q + 1]`: question i owns the pairs `questions[i]:questions[i + 1]`."""

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return len(self.labels)

    def on(self, device: torch.device) -> TeacherBatch:
        """The batch on `device`."""
        inputs = {name: moved(tensor, device) for name, tensor in self.inputs.items()}
        return TeacherBatch(inputs, moved(self.labels, device), moved(self.questions, device))


def teacher_batch(groups: Sequence[Group], read: TeacherReader) -> TeacherBatch:
    """Encode the groups as the teacher reads them."""
    pairs = [(group.question, candidate) for group in groups for candidate in group.candidates]
    labels = torch.tensor([label for group in groups for label in group.labels])
    sizes = torch.tensor([0, *(len(group.labels) for group in groups)])
    return TeacherBatch(read.padded(read(pairs)), labels, sizes.cumsum(0))


def teacher_learner(
    model: Any, reader: TeacherReader, groups: Source[Group], config: TeacherConfig
) -> Learner[Any, Group, TeacherBatch]:
    """A classifier that learns from groups."""
    return Learner(
        network=model,
        config=config,
        items=EqualSteps(groups, config.examples_per_step),
        batch=partial(teacher_batch, read=reader),
        loss=partial(teacher_loss, config.loss),
        layers=hugging_face_layers(model),
    )


def teacher_loss(
    kind: Literal["pointwise", "listwise", "both"],
    step: int,
    forward: nn.Module,
    batch: TeacherBatch,
    pair_factor: float,
) -> tuple[Tensor, Losses]:
    """The loss of a batch, and its parts if there are two."""
    difference, losses = logit_difference(forward(**batch.inputs).logits)[:, None], {}
    if kind != "listwise":
        losses["pointwise"] = pair_factor * pointwise_loss(difference, batch.labels)[0]
    if kind != "pointwise":
        losses["listwise"] = listwise_loss(difference, batch.labels, batch.questions)[0]
    return torch.stack(list(losses.values())).sum(), losses if len(losses) > 1 else {}


def teacher_ranks(
    reader: TeacherReader, device: str, precision: Precision
) -> Callable[[Any, Sequence[Question]], RankedQuestions]:
    """A function that ranks questions by a classifier in the `precision` of its training, for `dev_figures`."""
    place = torch.device(device)

    def rank(model: Any, questions: Sequence[Question]) -> Iterator[tuple[Question, Mapping[str, Any]]]:
        for start in range(0, len(questions), TOGETHER):
            chosen = questions[start : start + TOGETHER]
            pairs = [(question.text, row.candidate) for question in chosen for row in question.candidates]
            with autocast(place, precision):
                scores = differences(model, reader, pairs, device=place, batch_tokens=BATCH_TOKENS)
            ends = np.cumsum([len(question.candidates) for question in chosen])
            for question, own in zip(chosen, np.split(scores, ends[:-1]), strict=True):
                if not np.isfinite(own).all():
                    raise NonFiniteScoreError(f"question {question.id!r}: a score is not a number")
                yield question, {"final": ranks_of(own)}

    return rank


def classifier(base: Base, config: TeacherConfig) -> Any:
    """The base as a classifier. A cross-encoder keeps its one or two logits; any other base gets two new ones.

    Raises UnsupportedModelError for a setting that the base does not have, and for a cross-encoder that lacks weights.
    """
    folder, labels = str(base.folder), base.described.num_labels if base.is_cross_encoder else 2
    described = copy.deepcopy(base.described)
    described.num_labels = labels
    if config.layers is not None:
        if not 0 < config.layers <= described.num_hidden_layers:
            raise UnsupportedModelError(f"--layers {config.layers}: {base.place} has {described.num_hidden_layers}")
        described.num_hidden_layers = config.layers
    if config.dropout is not None:
        names = [name for name in vars(described) if name in DROPOUT]
        if len(names) < 2:
            raise UnsupportedModelError(f"dropout cannot be set: {described.model_type} names it in another way")
        for name in names:
            setattr(described, name, config.dropout)
    set_seed(config.seed)
    # If the base classifies into more labels, its last layer has another shape; all other layers are loaded.
    with quiet_transformers():
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            folder, config=described, ignore_mismatched_sizes=not base.is_cross_encoder, output_loading_info=True
        )
    if base.is_cross_encoder and (missing := sorted(loading["missing_keys"])):
        raise UnsupportedModelError(f"{base.place} is said to be a sequence classifier, but lacks {', '.join(missing)}")
    if config.token_types != "shared":
        grow_token_types(model, 3, new=config.token_types, seed=config.seed)
    return model
