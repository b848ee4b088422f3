"""The training of a text ranker from triples, one of TRMD's teachers or students, which `train pairwise` runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from cerberank_models.first_stage.text_ranker_folder import read_text_ranker, write_text_ranker
from cerberank_models.network.text_ranker import TextRanker
from cerberank_models.output import UsageError, say
from cerberank_models.text_encoding import TextEncoder
from cerberank_papers.pairwise.objective import losses_of
from cerberank_papers.pairwise.settings import SYSTEMS, PairwiseConfig, PairwiseObjective, PairwiseOptions, System
from cerberank_papers.pairwise.teachers import FrozenTeacher, Teachers
from cerberank_papers.pairwise.text_rankers import build_text_ranker
from cerberank_papers.pairwise.triple_batch import TripleBatch, count_cut, triple_batch
from cerberank_papers.pairwise.triple_sampling import Triple, TripleSampler, triple_sampler_for
from cerberank_training.data import Question
from cerberank_training.data.sampling import cut_note
from cerberank_training.evaluation.dev_figures import RankedQuestions, RankingJob
from cerberank_training.evaluation.question_metrics import TITLES
from cerberank_training.evaluation.sources.text_ranker import text_ranks
from cerberank_training.runs.base import Base, open_hugging_face_base
from cerberank_training.runs.loop import EqualSteps, Learner, Losses, Source
from cerberank_training.runs.record import RunRecord, results_suffix
from cerberank_training.runs.run_data import folder_content


class TextRankerJob(RankingJob[PairwiseOptions]):
    """The training of a text ranker."""

    verb = "pairwise"
    result_name = "ranker"

    @property
    def system(self) -> System:
        """The rankers of the network, and whether it has teachers."""
        return SYSTEMS[self.options.system]

    @property
    def teachers(self) -> dict[str, Path]:
        """The folders of the teachers by role."""
        folders = {"mono": self.options.mono, "bi": self.options.bi}
        return {role: path for role, path in folders.items() if path is not None}

    def check(self) -> None:
        """Raise what is wrong with any option that can be told without reading data or a base."""
        if self.system.taught != bool(self.teachers):
            need = "needs --mono or --bi, or both" if self.system.taught else "learns from no teacher"
            raise UsageError(f"{self.options.system} {need}.")
        super().check()

    @cached_property
    def base(self) -> Base:
        """The encoder."""
        return open_hugging_face_base(self.options.base, reason="a text ranker starts from a Hugging Face encoder")

    @cached_property
    def triples(self) -> TripleSampler:
        """The triples to learn from."""
        options, questions = self.options, list(self.data.questions)
        return triple_sampler_for(options.train, questions, options.triples, seed=options.training.seed)

    @cached_property
    def config(self) -> PairwiseConfig:
        """The settings of the loop."""
        return self.options.training.resolved(len(self.triples))

    @property
    def bound(self) -> dict[str, Any]:
        """The content of base, data and teachers, and the settings."""
        options = self.options
        return {
            "base": self.base.content(),
            **self.data.bound,
            "teachers": {role: folder_content(path) for role, path in self.teachers.items()},
            "settings": {
                "system": options.system,
                "layers": options.layers,
                "sampling": asdict(options.triples),
                "lengths": asdict(options.lengths),
                "loss": asdict(options.loss),
                "train": self.config.bound,
            },
        }

    @property
    def names(self) -> dict[str, str | None]:
        """The names of data and teachers."""
        return super().names | {role: str(path) for role, path in self.teachers.items()}

    @cached_property
    def network(self) -> tuple[TextRanker, Tokenizer]:
        """The network from the base, and its tokenizer."""
        options, loss, config = self.options, self.options.loss, self.config
        return build_text_ranker(
            self.system,
            self.base,
            name=options.system,
            encoding=options.lengths.encoding,
            seed=config.seed,
            dropout=config.dropout,
            layers=options.layers,
            mean=loss.mean,
            colbert_texts=loss.colbert_texts,
        )

    @property
    def encoder(self) -> TextEncoder:
        """The encoder of texts."""
        ranker, tokenizer = self.network
        return TextEncoder(tokenizer, ranker.config)

    @cached_property
    def learner(self) -> Learner[TextRanker, Triple, PairwiseBatch]:
        """The network, and the triples and teachers that it learns from."""
        options, config = self.options, self.config
        teachers = Teachers(mono=_teacher(options.mono, config), bi=_teacher(options.bi, config))
        return pairwise_learner(*self.network, self.triples, config, objective=options.loss, teachers=teachers)

    @property
    def ranks(self) -> Callable[[TextRanker, Sequence[Question]], RankedQuestions]:
        """Ranks questions by the vectors of their texts."""
        return text_ranks(self.encoder)

    @property
    def start_lines(self) -> Sequence[str]:
        """Lines on dev questions that are trained on, and on texts that are cut in the first step."""
        cut = count_cut(self.triples.step(0, self.config.examples_per_step), self.encoder)
        return (self.data.shared, cut_note(*cut, what="texts", option="--question-length or --document-length"))

    def write(self, record: RunRecord) -> None:
        """Write the folder of the text ranker, and say what it is."""
        options, best = self.options, record.results["best"]
        write_text_ranker(
            self.result,
            *self.network,
            version=f"steps-{self.config.steps}-seed-{self.config.seed}",
            source=f"TRMD {options.system}, run {record.digest}",
            metrics={self.dev_name: best},
        )
        say(f"{self.result}: best dev {TITLES[options.select]} {best:.2f}{results_suffix(record)}")


def _teacher(path: Path | None, config: PairwiseConfig) -> FrozenTeacher | None:
    if path is None:
        return None
    saved = read_text_ranker(path)
    return FrozenTeacher(str(path), saved.ranker, saved.tokenizer, precision=config.precision)


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
        losses = losses_of(self.objective, student, mono=mono, bi=bi)
        return torch.stack(list(losses.values())).sum(), losses


def is_fresh(name: str) -> bool:
    """True if the weight `name` starts from random values, because it belongs to a ranker on top of the encoder."""
    return name.startswith(("first_ranker.", "token_ranker."))
