"""Text rankers that learn from triples: TRMD's teachers and students."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from cyclopts import Group, Parameter
from cyclopts.validators import Number
from tokenizers import Tokenizer
from torch import Tensor, nn

from cerberank_models.commands.values import Count, NotNegative, Positive
from cerberank_models.network.text_ranker import TextRanker
from cerberank_models.text_encoding import TextEncoder
from cerberank_papers.pairwise.objective import PairwiseObjective
from cerberank_papers.pairwise.teachers import Teachers
from cerberank_papers.pairwise.triple_batch import TripleBatch, triple_batch
from cerberank_papers.pairwise.triple_sampling import Triple
from cerberank_training.runs.loop import Learner, Losses
from cerberank_training.runs.settings import Precision, TrainConfig
from cerberank_training.runs.steps_ahead import EqualSteps, Source


@Parameter(name="*", group=Group("Schedule", sort_key=2), show_default=False)
@dataclass(frozen=True, kw_only=True, slots=True)
class PairwiseConfig(TrainConfig):
    """The settings of a run: Adam without decay of weights or rates, for all weights (TRMD section 3.1.3)."""

    examples_per_step: Count = 32
    """Triples of a step, of all processes together."""
    learning_rate: Positive = 1e-6
    """Highest learning rate of the encoder."""
    fresh_learning_rate: Positive = 1e-3
    """Highest learning rate of the rankers."""
    warmup: NotNegative = 0.0
    decay: Annotated[bool, Parameter(parse=False)] = False
    weight_decay: NotNegative = 0.0
    dropout: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.1
    """Dropout of the whole network."""
    precision: Precision = "fp32"

    @property
    def rates(self) -> dict[str, float]:
        """The rate of the encoder, and of the rankers on top of it."""
        return {"learning_rate": self.learning_rate, "fresh_learning_rate": self.fresh_learning_rate}


@dataclass(frozen=True, slots=True)
class PairwiseBatch:
    """The triples of a batch as the student and the bi-encoder read them, and as monoBERT does."""

    texts: TripleBatch
    plain: TripleBatch

    @property
    def pairs(self) -> int:
        """The number of questions with a document."""
        return len(self.texts.owners)

    def on(self, device: torch.device) -> PairwiseBatch:
        """The batch on `device`."""
        texts = self.texts.on(device)
        return PairwiseBatch(texts, texts if self.plain is self.texts else self.plain.on(device))


def pairwise_batch(triples: Sequence[Triple], encoder: TextEncoder, plain: TextEncoder | None) -> PairwiseBatch:
    """Encode the triples. The second encoder is None if monoBERT reads the same texts."""
    texts = triple_batch(triples, encoder)
    return PairwiseBatch(texts, texts if plain is None else triple_batch(triples, plain))


def pairwise_learner(
    ranker: TextRanker,
    tokenizer: Tokenizer,
    triples: Source[Triple],
    config: PairwiseConfig,
    *,
    objective: PairwiseObjective = PairwiseObjective(),  # noqa: B008 - frozen
    teachers: Teachers = Teachers(),  # noqa: B008 - frozen
) -> Learner[TextRanker, Triple, PairwiseBatch]:
    """A text ranker that learns from triples. Raises ValueError when a teacher does not fit the student."""
    teachers.check(ranker.config, tokenizer)
    plain = None
    if ranker.config.encoding.colbert is not None:  # monoBERT reads texts as they are
        encoding = ranker.config.encoding.model_copy(update={"colbert": None})
        plain = TextEncoder(tokenizer, ranker.config.model_copy(update={"encoding": encoding}))
    return Learner(
        network=ranker,
        config=config,
        items=EqualSteps(triples, config.examples_per_step),
        batch=partial(pairwise_batch, encoder=TextEncoder(tokenizer, ranker.config), plain=plain),
        loss=PairwiseLoss(objective, teachers),
        layers=[*ranker.body],
        is_fresh=is_fresh,
    )


@dataclass(frozen=True, slots=True)
class PairwiseLoss:
    """The loss of a batch, and each of its losses."""

    objective: PairwiseObjective
    teachers: Teachers

    def __call__(
        self, step: int, forward: nn.Module, batch: PairwiseBatch, pair_factor: float
    ) -> tuple[Tensor, Losses]:
        """The sum of the losses. All triples have two pairs, so that the factor for pairs is 1."""
        mono, bi = (
            None if teacher is None else teacher.read(texts)
            for teacher, texts in ((self.teachers.mono, batch.plain), (self.teachers.bi, batch.texts))
        )
        student = forward(batch.texts.questions, batch.texts.documents, batch.texts.owners)
        losses = self.objective.losses(student, mono=mono, bi=bi)
        return torch.stack(list(losses.values())).sum(), losses


def is_fresh(name: str) -> bool:
    """True if the weight `name` starts from random values, because it belongs to a ranker on top of the encoder."""
    return name.startswith(("first_ranker.", "token_ranker."))
