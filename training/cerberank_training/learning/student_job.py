"""The training of a student, which `train distil` runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cerberank_models.backends.device_memory import return_unused_memory
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.model_card import RUN, read_terms, terms_of
from cerberank_models.checkpoint.store.checkpoint_store import is_name, name_of
from cerberank_models.convert.checkpoint import PARITY, Forms, export_checkpoint
from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.output import UsageError, say
from cerberank_training.data import Question
from cerberank_training.data.sampling import (
    LOOKED_AT,
    Group,
    NegativeSampling,
    PairSampler,
    SampledGroups,
    Sampler,
    Sampling,
    calibration_texts,
    count_cut,
    cut_note,
    first_sizes,
    sampler_for,
)
from cerberank_training.evaluation.dev_figures import RankedQuestions, RankingTraining, dev_figures
from cerberank_training.evaluation.question_metrics import TITLES
from cerberank_training.evaluation.variants import Scorer, rank_questions
from cerberank_training.learning.batch import Batch, make_batch
from cerberank_training.learning.strategies import strategy_of
from cerberank_training.learning.student_losses import StudentLoss
from cerberank_training.learning.student_network import Student, build_student, copied_heads, fitted
from cerberank_training.learning.student_settings import (
    DistilOptions,
    StudentConfig,
    StudentObjective,
    StudentSettings,
)
from cerberank_training.runs.base import open_base
from cerberank_training.runs.job import Inputs, Job
from cerberank_training.runs.launched import launched_processes, note_of
from cerberank_training.runs.loop import Learner
from cerberank_training.runs.record import RunRecord, results_suffix
from cerberank_training.runs.run_data import RankingData, check_ranking_data, open_ranking_data
from cerberank_training.runs.steps_ahead import EqualSteps, Source
from cerberank_training.runs.summary import dev_metric, read_summary, run_card, summary_of, training_data
from cerberank_training.teachers.completeness import refuse_missing_scores, scored_data
from cerberank_training.teachers.scoring.hugging_face import teacher_origin
from cerberank_training.teachers.scoring.model_scores import is_model, score_by_model
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache

FORMS = ("fp32", "int8")


@dataclass(frozen=True, kw_only=True)
class StudentInputs(Inputs):
    """The base and the data of a student."""

    config: StudentConfig
    settings: StudentSettings
    """The settings with the depth of the base."""
    data: RankingData
    groups: Sampler | PairSampler | SampledGroups
    teachers: Mapping[Path, TeacherScoreCache]
    """The teachers' scores by `--teacher`."""


class StudentJob(Job[DistilOptions, StudentInputs]):
    """The training of a student."""

    verb = "distil"
    result_name = "checkpoint"

    @property
    def forms(self) -> tuple[str, ...]:
        """The ONNX forms of the checkpoint."""
        return FORMS if self.options.forms is None else self.options.forms

    @property
    def strategy(self) -> str:
        """The name of the strategy. Raises ValueError if the heads and the teachers fit none."""
        settings = self.options.settings
        return strategy_of(settings.objective.strategy, heads=settings.shape.heads, teachers=len(self.options.teacher))

    def check_own(self) -> None:
        """Raise what is wrong with any option that can be told without reading data or a base."""
        options, settings = self.options, self.options.settings
        settings.check(sampled=options.groups is not None)
        if unknown := set(self.forms) - set(PARITY):
            raise ValueError(f"--forms are of {', '.join(PARITY)}, not {', '.join(sorted(unknown))}")
        _ = self.strategy
        models = [place for place in options.teacher if is_model(place)]
        if models and launched_processes() > 1:
            raise UsageError(
                f"--teacher {models[0]}: several processes take score caches alone: run `cerberank data score CACHE "
                f"--teacher {models[0]} --data {options.data}` first."
            )
        for option in ("name", "version"):
            if (value := getattr(options, option)) is not None and not is_name(value):
                raise ValueError(f"--{option} {value!r} is not a name: letters, digits, '.', '_' and '-', at most 96")
        if options.terms is not None:
            read_terms(options.terms)
        check_ranking_data(options.data, options.dev, options.dev_questions)

    def open(self) -> StudentInputs:
        """Open the base, the teachers' scores, and the questions to train on and to choose by."""
        options = self.options
        # The base comes first, because the depth of the student follows from it.
        base = open_base(options.base)
        settings = replace(options.settings, shape=fitted(base, options.settings.shape))
        base_content = base.content()
        # Everything else that the run reads. Groups that were sampled beforehand are taken as they are.
        data = open_ranking_data(options.data, options.dev, options.dev_questions, select=options.select)
        groups = (
            SampledGroups(options.data, data.questions)
            if options.groups
            else sampler_for(options.data, data.questions, settings.sampling, seed=settings.train.seed)
        )
        settings = replace(settings, train=settings.train.resolved(len(groups)))
        # Teachers' scores: caches, or those that a model gives all pairs, computed once into the run's folder.
        folders = self._score_folders(scored_data(groups, options.data))
        teachers = {place: TeacherScoreCache.open(folder) for place, folder in folders.items()}
        # The record states the paths, but a resumed run may have others.
        names = {name: str(value) for name in ("train", "groups", "dev") if (value := getattr(options, name))}
        return StudentInputs(
            base=base,
            config=settings.train,
            settings=settings,
            data=data,
            groups=groups,
            teachers=teachers,
            bound={
                "base": base_content,
                **data.bound,
                "data": {"drawn": not options.groups} | data.bound["data"],
                "teachers": [teachers[path].content(folders[path]) for path in options.teacher],
                "settings": settings.bound(drawn=not options.groups, strategy=self.strategy),
            },
            names=names,
            recipe=options.recipe,
        )

    def _score_folders(self, data: str) -> dict[Path, Path]:
        """The score cache of each `--teacher`."""
        folders = {}
        for number, place in enumerate(dict.fromkeys(self.options.teacher), start=1):
            folders[place] = place
            if is_model(place):
                folder = folders[place] = self.out / "scores" / f"{number}-{name_of(place.name)}"
                note_of(self.verb, f"--teacher {place} is a model: its scores of {data} are computed once, in {folder}")
                score_by_model(place, folder, data, device=self.options.run.place)
        return folders

    def check_finished(self, record: RunRecord) -> None:
        """Say that nothing is left to train.

        Raises ValueError when the folder holds another checkpoint, or when its names or forms are to differ.
        """
        options, checkpoint = self.options, self.result
        summary = read_summary(checkpoint) or {}
        if summary.get("digest") not in {record.digest, record.result_digest}:
            raise ValueError(f"{checkpoint} is not of this run: move it away")
        finished = read_checkpoint(checkpoint)
        requested: dict[str, tuple[Any, Any]] = {
            "name": (options.name, finished.config.name),
            "version": (options.version, finished.manifest.version),
            "forms": (None if options.forms is None else set(options.forms), set(finished.precisions)),
        }
        changes = [name for name, (wanted, actual) in requested.items() if wanted is not None and wanted != actual]
        if options.terms is not None and read_terms(options.terms) not in (checkpoint / "README.md").read_text():
            changes.append("terms")
        if changes:
            other = f"export {checkpoint} OUT" if changes[0] == "forms" else f"card {checkpoint}"
            raise ValueError(f"{checkpoint} is finished; `cerberank {other} --{changes[0]} ...` changes that")
        note_of(
            self.verb,
            f"{checkpoint} is finished ({finished.config.name}@{finished.manifest.version}, dev "
            f"{TITLES[options.select]} {record.results['best']:.2f}); nothing was done. --steps of more than "
            f"{record.results['asked']} extends it",
        )

    def prepare(self, inputs: StudentInputs, record: RunRecord) -> StudentTraining:
        """Build the network from the base. Raises MissingScoreError if a teacher has not scored all pairs."""
        options, train = self.options, inputs.config
        refuse_missing_scores(inputs.teachers, inputs.groups, data=options.data)
        terms = None if options.terms is None else read_terms(options.terms)
        names = names_of(self.out, name=options.name, default=name_of(self.out.resolve().name), terms=terms)
        settings = replace(inputs.settings, shape=replace(inputs.settings.shape, name=names.name), train=train)
        # 1. The network, and what it learns.
        student = build_student(settings.shape, inputs.base, seed=train.seed, dropout=train.dropout)
        if names.languages:
            student.ranker.config = student.ranker.config.model_copy(update={"languages": names.languages})
        encoder, teachers = student.encoder(), [inputs.teachers[path] for path in options.teacher]
        learner = student_learner(
            student.ranker, inputs.groups, encoder, train, objective=settings.objective, teachers=teachers
        )
        work = step_work(student.ranker, train, settings.sampling, max_length=settings.shape.max_length)
        # 2. Lines on the data, the heads, the start and the first step. Heads of a resumed run have the saved weights.
        shared, contents = inputs.data.shared, inputs.bound["teachers"]
        copied = (
            "" if self.is_saved else copied_heads(student.ranker, settings.objective, contents, dropout=train.dropout)
        )
        start = (
            student.start,
            "" if teachers else "learns from the labels alone",
            first_sizes(learner.items(0, 0)),
            cut_note(*first_pairs_cut(inputs.groups, encoder), what="pairs", option="--max-length"),
        )
        return StudentTraining(
            learner=replace(learner, work=work),
            measure=dev_figures(network_ranks(student.encoder(), options.run.place), inputs.data.dev, options.select),
            start_lines=(shared, copied, "; ".join(filter(None, start))),
            dev=inputs.data.dev,
            job=self,
            inputs=inputs,
            settings=settings,
            names=names,
            student=student,
            shared=shared,
        )


@dataclass(frozen=True, kw_only=True)
class StudentTraining(RankingTraining):
    """A student, and the run that trains it."""

    job: StudentJob
    inputs: StudentInputs
    settings: StudentSettings
    """The settings with the name of the model, the depth of the base, and the steps of the first call."""
    names: ModelNames
    student: Student
    shared: str
    """A line on dev questions that are trained on."""

    def write(self, record: RunRecord) -> None:
        """Write the checkpoint, and say what it is and which commands come next."""
        job, options, settings, names = self.job, self.job.options, self.settings, self.names
        # The card and `run.json` are made of the record, which names the teachers and the data of the base.
        origins = [teacher_origin(self.inputs.teachers[path].teacher) for path in options.teacher]
        summary = summary_of(record, teachers=origins, earlier=training_data(self.inputs.base.folder))
        reached = record.results["reached"]
        version = options.version or f"{job.strategy}-steps-{reached}-seed-{settings.train.seed}-{record.digest}"
        architecture = self.student.ranker.config.architecture
        export_checkpoint(
            self.student.ranker,
            self.student.tokenizer,
            job.result,
            card=run_card(summary, name=names.name, architecture=architecture, terms=names.terms),
            version=version,
            source=f"recipe {options.recipe}, run {record.digest}",
            metrics={dev_metric(summary): record.results["best"]},
            forms=Forms(precisions=job.forms, calibration=calibration_texts(self.inputs.data.questions)),
            files={RUN: json.dumps(summary, indent=2).encode() + b"\n"},
        )
        # Last words: the result, and the commands that come next.
        figures = f"dev {TITLES[options.select]} {record.results['best']:.2f} on {record.results['questions']} "
        figures += f"questions of {options.dev}"
        figures += results_suffix(record.results) + (f"; {self.shared}" if self.shared else "")
        extended = names.extended(version)
        say(
            closing(
                job.result,
                name=names.name,
                figures=figures,
                forms=job.forms,
                train=options.data,
                extended=extended,
            )
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelNames:
    """The name, licence terms and languages of the new model."""

    name: str
    terms: str | None
    languages: tuple[str, ...] = ()
    """The languages that the earlier model states; empty for a new run."""
    carried: tuple[str, ...] | None = None
    """The properties that are kept of the earlier model, in words; None if the run is not extended."""

    def extended(self, version: str) -> str:
        """A suffix for a line with the carried properties and the version of an extended model; empty for a new run."""
        if self.carried is None:
            return ""
        return f"; extended: {', '.join([*(f'{each} kept' for each in self.carried), f'version {version}'])}"


def names_of(out: Path, *, name: str | None, default: str, terms: str | None) -> ModelNames:
    """The name and terms that the options give, else those of the model in `out`, else the default name and no terms.

    Those of the model are read from its files, because `cerberank checkpoint card` may have changed them.
    """
    model_folder = _latest(out)
    if model_folder is None:
        return ModelNames(name=name or default, terms=terms)
    config = json.loads((model_folder / "config.json").read_bytes())
    model_name: str = config["name"]
    stated = terms_of((model_folder / "README.md").read_text(encoding="utf-8"))
    carried = [f"name {model_name}"] if name is None and model_name != default else []
    carried += ["terms"] if terms is None and stated is not None else []
    return ModelNames(
        name=name or model_name,
        terms=stated if terms is None else terms,
        languages=tuple(config.get("languages", ())),
        carried=tuple(carried),
    )


def _latest(out: Path) -> Path | None:
    """The run's checkpoint. If a killed call had moved it aside, the one that was moved aside last."""
    if (out / "checkpoint").is_dir():
        return out / "checkpoint"
    aside = [path for path in out.glob("checkpoint-*") if (path / "config.json").is_file()]
    return max(aside, key=lambda path: (path / "manifest.json").stat().st_mtime_ns, default=None)


def closing(checkpoint: Path, *, name: str, figures: str, forms: Sequence[str], train: str, extended: str = "") -> str:
    """The last lines of a run with ONNX graphs in these `forms`: its result, and the commands that come next.

    int8 ranges are measured on the data `train`. `extended` is a suffix that begins with a semicolon, and says what an
    extended run has kept of its earlier model.
    """
    folder = shlex.quote(str(checkpoint))
    written = ", ".join(["weights", *(f"ONNX {form}" for form in forms)])
    exported = checkpoint.parent / "exported"
    served = folder if forms else shlex.quote(str(exported))
    backend = "" if forms else " --backend torch"
    steps = [("measure", f"cerberank evaluate --checkpoint {folder}{backend} --data FORMAT:PATH")]
    if not forms:
        steps.append(("export", f"cerberank export {folder} {served} --int8-texts {shlex.quote(train)}"))
    steps += [
        ("keep", f"cerberank store push {served} STORE --label stable"),
        ("serve", f"CERBERANK_CHECKPOINT={served} cerberank serve"),
    ]
    lines = [f"{checkpoint}: {name}, {figures}; {written}{extended}"]
    return "\n".join(lines + [f"  {verb + ':':<9}{command}" for verb, command in steps])


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
    )


def step_work(network: nn.Module, config: StudentConfig, sampling: Sampling, *, max_length: int) -> float:
    """The number of products of a weight and a token in a step, if all pairs had `max_length` tokens.

    Embeddings do not count, because they are looked up and not multiplied.
    """
    embeddings = {id(each.weight) for each in network.modules() if isinstance(each, nn.Embedding)}
    weights = sum(each.numel() for each in network.parameters() if id(each) not in embeddings)
    if config.tokens_per_step is not None:
        return float(weights) * config.tokens_per_step
    pairs = 1
    if isinstance(sampling, NegativeSampling):
        pairs += sampling.negatives + sampling.hard_negatives + sampling.other_negatives
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
