"""The training of a student, which `train distil` runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cerberank_models.backends.device_memory import return_unused_memory
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.model_card import RUN, read_terms
from cerberank_models.checkpoint.store.checkpoint_store import is_name, name_of
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.output import UsageError, say
from cerberank_training.data import Question
from cerberank_training.data.sampling import (
    LOOKED_AT,
    ExampleOptions,
    Group,
    PairSampler,
    SampledGroups,
    Sampler,
    calibration_texts,
    count_cut,
    cut_note,
    first_sizes,
    sampler_for,
)
from cerberank_training.evaluation.dev_figures import RankedQuestions, RankingJob
from cerberank_training.evaluation.question_metrics import TITLES
from cerberank_training.evaluation.variants import Scorer, rank_questions
from cerberank_training.learning.batch import Batch, make_batch
from cerberank_training.learning.settings import (
    DistilOptions,
    StudentConfig,
    StudentObjective,
    StudentSettings,
)
from cerberank_training.learning.strategies import strategy_of
from cerberank_training.learning.student_losses import StudentLoss
from cerberank_training.learning.student_network import Student, build_student, copied_heads, fitted
from cerberank_training.runs.base import Base, open_base
from cerberank_training.runs.loop import EqualSteps, Learner, Source
from cerberank_training.runs.record import RunRecord, launched_processes, note_of, results_suffix
from cerberank_training.runs.run_data import Content
from cerberank_training.runs.summary import dev_metric, run_card, summary_of, training_data
from cerberank_training.teachers.completeness import refuse_missing_scores, scored_data
from cerberank_training.teachers.scoring.hugging_face import teacher_origin
from cerberank_training.teachers.scoring.model_scores import is_model, score_by_model
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache

FORMS = ("fp32", "int8")


class StudentJob(RankingJob[DistilOptions]):
    """The training of a student."""

    verb = "distil"
    result_name = "checkpoint"

    @property
    def forms(self) -> tuple[str, ...]:
        """The ONNX forms of the checkpoint."""
        return FORMS if self.options.forms is None else self.options.forms

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.options.name or name_of(self.out.resolve().name)

    @property
    def terms(self) -> str | None:
        """The text of the licence and terms. Raises OSError for a file that cannot be read."""
        return None if self.options.terms is None else read_terms(self.options.terms)

    @property
    def strategy(self) -> str:
        """The name of the strategy. Raises ValueError if the heads and the teachers fit none."""
        settings = self.options.settings
        return strategy_of(settings.objective.strategy, heads=settings.shape.heads, teachers=len(self.options.teacher))

    @property
    def trained_on(self) -> str:
        """The questions to train on, or the groups that were sampled beforehand."""
        return self.options.groups or self.options.train or ""

    def check(self) -> None:
        """Raise what is wrong with any option that can be told without reading data or a base."""
        options = self.options
        options.settings.check(sampled=options.groups is not None)
        _ = self.strategy
        models = [place for place in options.teacher if is_model(place)]
        if models and launched_processes() > 1:
            raise UsageError(
                f"--teacher {models[0]}: several processes take score caches alone: run `cerberank data score CACHE "
                f"--teacher {models[0]} --data {self.trained_on}` first."
            )
        for option in ("name", "version"):
            if (value := getattr(options, option)) is not None and not is_name(value):
                raise ValueError(f"--{option} {value!r} is not a name: letters, digits, '.', '_' and '-', at most 96")
        _ = self.terms
        super().check()

    @cached_property
    def base(self) -> Base:
        """The encoder, cross-encoder or checkpoint."""
        return open_base(self.options.base)

    @cached_property
    def groups(self) -> Sampler | PairSampler | SampledGroups:
        """The groups of questions' candidates. Those that were sampled beforehand are taken as they are."""
        settings, questions = self.options.settings, self.data.questions
        if self.options.groups:
            return SampledGroups(self.trained_on, questions)
        return sampler_for(self.trained_on, questions, settings.examples, seed=settings.train.seed)

    @property
    def config(self) -> StudentConfig:
        """The settings of the loop."""
        return self.settings.train

    @cached_property
    def settings(self) -> StudentSettings:
        """The settings with the name of the model, the depth of the base, and whole numbers of steps."""
        settings = self.options.settings
        # The depth first: a base that does not fit is refused before data are read.
        shape = fitted(self.base, replace(settings.shape, name=self.name))
        return replace(settings, shape=shape, train=settings.train.resolved(len(self.groups)))

    @cached_property
    def teachers(self) -> dict[Path, TeacherScoreCache]:
        """The teachers' scores by `--teacher`; those of a model are computed once, into the run's folder."""
        caches = {}
        for number, place in enumerate(dict.fromkeys(self.options.teacher), start=1):
            folder = place
            if is_model(place):
                data = scored_data(self.groups, self.trained_on)
                folder = self.out / "scores" / f"{number}-{name_of(place.name)}"
                note_of(self.verb, f"--teacher {place} is a model: its scores of {data} are computed once, in {folder}")
                score_by_model(place, folder, data, device=self.options.run.place)
            caches[place] = TeacherScoreCache.open(folder)
        return caches

    @cached_property
    def contents(self) -> list[Content]:
        """The identity of each teacher's scores, in the order of the heads."""
        return [self.teachers[place].content() for place in self.options.teacher]

    @property
    def bound(self) -> dict[str, Any]:
        """The content of base, data and teachers, the settings, and what the checkpoint is called."""
        options, drawn = self.options, not self.options.groups
        return {
            "base": self.base.content(),
            "settings": self.settings.bound(drawn=drawn, strategy=self.strategy),
            **self.data.bound,
            "data": {"drawn": drawn} | self.data.bound["data"],
            "teachers": self.contents,
            "checkpoint": {
                "name": options.name,
                "version": options.version,
                "forms": sorted(self.forms),
                "terms": self.terms,
            },
        }

    @property
    def names(self) -> dict[str, str | None]:
        """The names of the data, and of groups that were sampled beforehand."""
        return super().names | {"groups": self.options.groups}

    @cached_property
    def student(self) -> Student:
        """The network, from the base. Raises MissingScoreError if a teacher has not scored all pairs."""
        refuse_missing_scores(self.teachers, self.groups, data=self.trained_on)
        return build_student(self.settings.shape, self.base, seed=self.config.seed, dropout=self.config.dropout)

    @cached_property
    def learner(self) -> Learner[RankingNetwork, Group, Batch]:
        """The network, and the groups and teachers that it learns from."""
        ranker, settings, config = self.student.ranker, self.settings, self.config
        work = step_work(ranker, config, settings.examples, max_length=settings.shape.max_length)
        teachers = [self.teachers[path] for path in self.options.teacher]
        return student_learner(
            ranker,
            self.groups,
            self.student.encoder(),
            config,
            objective=settings.objective,
            teachers=teachers,
            work=work,
        )

    @property
    def ranks(self) -> Callable[[RankingNetwork, Sequence[Question]], RankedQuestions]:
        """Ranks questions by every exit and head."""
        return network_ranks(self.student.encoder(), self.options.run.place)

    @property
    def start_lines(self) -> Sequence[str]:
        """Lines on the data, the heads, the start and the first step."""
        ranker, objective, copied = self.student.ranker, self.settings.objective, ""
        if not self.is_saved:  # the heads of a resumed run have the saved weights
            copied = copied_heads(ranker, objective, self.contents, dropout=self.config.dropout)
        start = (
            self.student.start,
            "" if self.teachers else "learns from the labels alone",
            first_sizes(self.learner.items(0, 0)),
            cut_note(*first_pairs_cut(self.groups, self.student.encoder()), what="pairs", option="--max-length"),
        )
        return (self.data.shared, copied, "; ".join(filter(None, start)))

    def write(self, record: RunRecord) -> None:
        """Write the checkpoint, and say what it is."""
        options, ranker, results = self.options, self.student.ranker, record.results
        # The card and `run.json` are made of the record, which names the teachers and the data of the base.
        origins = [teacher_origin(self.teachers[path].teacher) for path in options.teacher]
        summary = summary_of(record, teachers=origins, earlier=training_data(self.base.folder))
        default_version = f"{self.strategy}-steps-{results['reached']}-seed-{self.config.seed}-{record.digest}"
        export_checkpoint(
            ranker,
            self.student.tokenizer,
            self.result,
            card=run_card(summary, name=self.name, architecture=ranker.config.architecture, terms=self.terms),
            version=options.version or default_version,
            source=f"recipe {options.recipe}, run {record.digest}",
            metrics={dev_metric(summary): results["best"]},
            forms=Forms(precisions=self.forms, calibration=calibration_texts(self.data.questions)),
            files={RUN: json.dumps(summary, indent=2).encode() + b"\n"},
        )
        written = ", ".join(["weights", *(f"ONNX {form}" for form in self.forms)])
        figures = f"dev {TITLES[options.select]} {results['best']:.2f} on {results['questions']} questions"
        shared = f"; {self.data.shared}" if self.data.shared else ""
        say(f"{self.result}: {self.name}, {figures} of {options.dev}{results_suffix(record)}{shared}; {written}")


class TokenSteps:
    """Cuts the sequence of groups into steps by numbers of tokens. The same groups give the same steps."""

    def __init__(self, groups: Source[Group], encoder: PairEncoder, tokens: int, *, multiple: int = 1) -> None:
        """The number of groups of a step is a multiple of `multiple`, the largest with at most `tokens` tokens.

        If `multiple` groups have more tokens, they are a step all the same.
        """
        self._groups = groups
        self._encoder = encoder
        self._tokens = tokens
        self._multiple = multiple

    def __call__(self, step: int, position: int) -> list[Group]:
        """The groups of the step that begins after `position` groups."""
        taken: list[Group] = []
        tokens = 0
        while True:
            group = self._groups.step(position + len(taken), 1)[0]
            tokens += self._encoder.encode(group.question, group.candidates).tokens
            if tokens > self._tokens and len(taken) >= self._multiple:
                break
            taken.append(group)
        del taken[len(taken) - len(taken) % self._multiple :]
        return taken


def student_learner(
    ranker: RankingNetwork,
    groups: Source[Group],
    encoder: PairEncoder,
    config: StudentConfig,
    *,
    objective: StudentObjective = StudentObjective(),  # noqa: B008 - frozen
    teachers: Sequence[TeacherScoreCache] = (),
    work: float | None = None,
) -> Learner[RankingNetwork, Group, Batch]:
    """A ranker of pairs that learns from groups, whose pairs every one of the `teachers` has scored."""
    # Word embeddings are most of a small network's weights, and may stay as they are.
    ranker.get_parameter("embeddings.tokens.weight").requires_grad_(config.train_token_embeddings)
    # A step has a number of groups, or as many as fit into a number of tokens.
    items: Callable[[int, int], list[Group]] = EqualSteps(groups, config.examples_per_step)
    if config.tokens_per_step is not None:
        multiple = launched_processes() * config.accumulate
        items = TokenSteps(groups, encoder, config.tokens_per_step, multiple=multiple)
    # The layers of the body and of the heads, for gradient checkpointing.
    head_layers = (layer for head in ranker.heads for layer in head.get_submodule("layers").children())
    return Learner(
        network=ranker,
        config=config,
        forward=_StageLogits(ranker),
        items=items,
        batch=partial(make_batch, encoder=encoder, teachers=teachers),
        loss=StudentLoss(config, objective, stages=len(ranker.config.stages), has_heads=bool(ranker.heads)),
        layers=[*ranker.body, *head_layers],
        is_fresh=_is_fresh,
        in_order=config.tokens_per_step is not None,
        work=work,
    )


def step_work(network: nn.Module, config: StudentConfig, examples: ExampleOptions, *, max_length: int) -> float:
    """The number of products of a weight and a token in a step, if all pairs had `max_length` tokens.

    Embeddings do not count, because they are looked up and not multiplied.
    """
    embeddings = {id(each.weight) for each in network.modules() if isinstance(each, nn.Embedding)}
    weights = sum(each.numel() for each in network.parameters() if id(each) not in embeddings)
    if config.tokens_per_step is not None:
        return float(weights) * config.tokens_per_step
    pairs = 1
    if examples.sampling == "grouped":
        pairs += examples.negatives + examples.hard_negatives + examples.other_negatives
    return float(weights) * config.examples_per_step * pairs * max_length


def first_pairs_cut(groups: Source[Group], encoder: PairEncoder) -> tuple[int, int]:
    """The number of pairs that are cut, and of all pairs, in the first groups."""
    return count_cut((groups.step(index, 1)[0] for index in range(LOOKED_AT)), encoder)


class _StageLogits(nn.Module):
    """The ranker with a `forward` that returns the logits of stages, as DistributedDataParallel needs it."""

    def __init__(self, ranker: RankingNetwork) -> None:
        super().__init__()
        self.ranker = ranker

    def forward(self, batch: Batch, stages: tuple[int, ...]) -> list[Tensor]:
        return self.ranker.stage_logits(batch.token_ids, batch.type_ids, batch.offsets, stages)


def _is_fresh(name: str) -> bool:
    """True for weights of exits and classifiers, which have the fresh learning rate even if they come from the base."""
    return name.startswith("exits.") or ".classifier." in name


def network_ranks(encoder: PairEncoder, device: str) -> Callable[[RankingNetwork, Sequence[Question]], RankedQuestions]:
    """A function that ranks questions by every exit and head of a network, for `dev_figures`."""

    def ranks(network: RankingNetwork, questions: Sequence[Question]) -> RankedQuestions:
        yield from rank_questions(Scorer(backend=TorchBackend(network, device=device), encoder=encoder), questions)
        return_unused_memory(device)  # the next evaluation has another stream, which cannot use this one's memory

    return ranks
