"""`cerberank train distil`: a student of a recipe, on labels or teachers' scores."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.model_card import RUN, read_terms, terms_of
from cerberank_models.checkpoint.store.protocol import is_name, name_of
from cerberank_models.commands.options import check_device, chosen_device
from cerberank_models.commands.values import Names, Whole
from cerberank_models.convert.checkpoint import PARITY, Forms, export_checkpoint
from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.output import UsageError, say
from cerberank_training.commands.presets import read_recipe, recipe_help
from cerberank_training.commands.recipe_options import UNCHANGED, RecipeOptions, changed_recipe
from cerberank_training.commands.run_options import DevQuestions, Track, data_help
from cerberank_training.data import Question, open_questions
from cerberank_training.data.sampling import SampledGroups, first_sizes, said_of_cuts, sampler_for
from cerberank_training.evaluation.variants import Evaluation, rank_questions
from cerberank_training.learning.processes import Processes, batch_of_step, leave_group
from cerberank_training.learning.strategies import check_strategy
from cerberank_training.learning.threads import step_work, training_threads
from cerberank_training.learning.train import Run
from cerberank_training.runs.base import open_base
from cerberank_training.runs.card import dev_metric, read_summary, run_card, summary_of
from cerberank_training.runs.content import data_content
from cerberank_training.runs.dev_set import Size, check_held_out, chosen_size, dev_set, in_common, measured
from cerberank_training.runs.launched import note_of
from cerberank_training.runs.options import named_options
from cerberank_training.runs.place import check_writable, writing
from cerberank_training.runs.record import TrainingRun, open_run, said_of_results
from cerberank_training.runs.trained import Trained
from cerberank_training.runs.trained_on import training_data
from cerberank_training.students.calibration import calibration_texts
from cerberank_training.students.recipes import Recipe, settings_of
from cerberank_training.students.shapes import build_student, copied_heads, fitted
from cerberank_training.teachers.completeness import refuse_missing_scores
from cerberank_training.teachers.scoring.hugging_face import teacher_origin
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache
from cerberank_training.tracking.log_file import LOG, best_step, dev_at_start, last_step
from cerberank_training.tracking.opening import check_trackers, open_trackers

PRECISIONS = ("fp32", "int8")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DistilOptions:
    """The options of `train distil`."""

    recipe: Annotated[str, Parameter(help=recipe_help())]
    base: str
    """Path or hub id of an encoder, or a checkpoint to train further."""
    train: Annotated[str | None, Parameter(help=data_help("Questions to draw groups or pairs from at every step"))] = (
        None
    )
    groups: str | None = None
    """Groups that `cerberank data sample` wrote, as jsonl:PATH, instead of --train; they are used in their order."""
    dev: str
    """Questions to choose weights by, as FORMAT:PATH."""
    dev_questions: DevQuestions = None
    teacher: tuple[Path, ...] = ()
    """Score cache of a teacher for all pairs of --train or --groups, written by `data score --teacher MODEL`; repeat
    for several."""
    out: Path
    """Folder of the run; the result is OUT/checkpoint."""
    device: str = "auto"
    """cpu, cuda, or cuda:N (default: a GPU if there is one)."""
    workers: Whole = 0
    """Processes that make batches ahead of the training; with 0 a thread does, one batch ahead."""
    precisions: Names | None = None
    """ONNX forms to write beside the weights (default: fp32,int8); "" for none."""
    no_export: bool = False
    """Write only the weights, which takes seconds; `cerberank export` writes the ONNX forms later."""
    track: Track = ()
    name: str | None = None
    """Name of the model in stores and services (default: the name of OUT)."""
    version: str | None = None
    """Version of the model in stores and services (default: strategy, steps, seed and a digest of the run's record)."""
    terms: str | None = None
    """Licence and terms of the data for the model card, as text or as a file."""
    changes: RecipeOptions = UNCHANGED

    @property
    def data(self) -> str:
        """The questions that are trained on, as FORMAT:PATH."""
        return self.groups or self.train or ""


def distil(*, options: DistilOptions) -> None:
    """Train a student by a recipe, on labels or teachers' scores.

    A killed run continues when the command is repeated. Several GPUs or processes:
    `torchrun --nproc-per-node 4 --no-python cerberank train distil ...`.

    Args:
        options: Options.
    """
    train_student(options)


def train_student(options: DistilOptions) -> Trained:
    """Train by the options and write the checkpoint, or say that this was done.

    Raises UsageError for options that do not go together, and what the parts raise: each names the option or file.
    """
    named = read_recipe(options.recipe)
    options = replace(
        options,
        recipe=named.title,
        device=chosen_device(options.device),
        dev_questions=options.dev_questions or named.dev_questions,
    )
    if (options.train is None) == (options.groups is None):
        raise UsageError("Give --train or --groups.")
    recipe = changed_recipe(named.recipe, options.changes, sampled=options.groups is not None)
    with writing(options.out):
        return _train(recipe, options)


def _train(recipe: Recipe, options: DistilOptions) -> Trained:
    precisions, terms, size = _checked(recipe, options)
    out: Path = options.out
    base = open_base(options.base)
    recipe = replace(recipe, shape=fitted(base, recipe.shape))
    base_content = base.content()
    dev = dev_set(options.dev, size)
    teachers, data = [TeacherScoreCache.open(path) for path in options.teacher], options.data
    questions = open_questions(data, training=True)
    groups = (
        SampledGroups(data, questions)
        if options.groups
        else sampler_for(data, questions, recipe.sampling, seed=recipe.train.seed)
    )
    content, dev_content = data_content(data, questions), data_content(options.dev, dev)
    check_held_out(options.dev, dev_content, train=data, train_content=content)
    places = {name: str(value) for name in ("train", "groups", "dev", "out") if (value := getattr(options, name))}
    checkpoint = out / "checkpoint"
    run = open_run(
        out,
        "distil",
        result=checkpoint,
        is_saved=(out / "state.pt").is_file(),
        bound={
            "base": base_content,
            "data": {"drawn": not options.groups} | content,
            "dev": {"size": size} | dev_content,
            "teachers": [cache.content(path) for cache, path in zip(teachers, options.teacher, strict=True)],
            "settings": settings_of(recipe, drawn=not options.groups),
        },
        free={
            **{name: getattr(recipe.train, name) for name in ("steps", "patience", "save_every")},
            "recipe": options.recipe,
            "names": places | {"base": base.name, "place": base.place, "commit": base.commit},
            "device": options.device,
        },
    )
    record = run.record
    if checkpoint.is_dir() and (finished := _finished(run, options)):
        return finished
    refuse_missing_scores(dict(zip(options.teacher, teachers, strict=True)), groups, data=data)
    names = names_of(out, name=options.name, default=name_of(out.resolve().name), terms=terms)
    recipe = replace(recipe, shape=replace(recipe.shape, name=names.name))
    recipe = replace(recipe, train=replace(recipe.train, planned=record.planned["steps"]))
    student = build_student(recipe.shape, base, seed=recipe.train.seed, dropout=recipe.train.dropout)
    if names.languages:
        student.ranker.config = student.ranker.config.model_copy(update={"languages": names.languages})
    copied = copied_heads(student.ranker, recipe.objective, record.bound["teachers"], dropout=recipe.train.dropout)
    encoder = student.encoder()
    training = Run(
        out,
        student.ranker,
        groups,
        encoder,
        recipe.train,
        objective=recipe.objective,
        teachers=teachers,
        device=options.device,
        workers=options.workers,
        trackers=open_trackers(options.track, out, name=out.name, settings=record.bound | record.free),
    )
    shared = in_common(dev, questions.question_texts())
    cuts = said_of_cuts(*training.count_cut(), what="pairs", option="--max-length")
    run.begin(shared, copied, "; ".join(filter(None, (student.start, first_sizes(training.first_step()), cuts))))
    work = step_work(student.ranker, recipe.train, recipe.sampling, max_length=recipe.shape.encoding.max_length)
    with training_threads(work):
        best = training.train(dev_map(encoder, dev, options.device, training.processes))
    leave_group()
    if training.processes.rank > 0:
        return Trained(checkpoint=checkpoint, dev_map=best)
    log = out / LOG
    record = run.finish(
        reached=last_step(log),
        best=best,
        best_step=best_step(log, recipe.train.all_trained),
        start=dev_at_start(log),
        questions=measured(dev),
    )
    origins = [teacher_origin(cache.teacher) for cache in teachers]
    summary = summary_of(record, teachers=origins, earlier=training_data(base.folder))
    version = (
        options.version
        or f"{recipe.objective.strategy}-steps-{recipe.train.steps}-seed-{recipe.train.seed}-{record.digest}"
    )
    export_checkpoint(
        student.ranker,
        student.tokenizer,
        checkpoint,
        card=run_card(summary, name=names.name, architecture=student.ranker.config.architecture, terms=names.terms),
        version=version,
        source=f"recipe {options.recipe}, run {record.digest}",
        metrics={dev_metric(summary): best},
        forms=Forms(precisions=precisions, calibration=calibration_texts(questions)),
        files={RUN: json.dumps(summary, indent=2).encode() + b"\n"},
    )
    figures = f"dev MAP {best:.2f} on {measured(dev)} questions of {options.dev}{said_of_results(record.results)}"
    figures += f"; {shared}" if shared else ""
    kept = names.said(version)
    say(closing(checkpoint, name=names.name, figures=figures, forms=precisions, train=data, kept=kept))
    return Trained(checkpoint=checkpoint, dev_map=best)


def _checked(recipe: Recipe, options: DistilOptions) -> tuple[tuple[str, ...], str | None, Size]:
    """The forms, the terms and the number of dev questions that are asked for.

    Raises what is wrong with any option that can be told without reading data or a base.
    """
    if options.no_export and options.precisions is not None:
        raise UsageError("--no-export writes no forms: leave --precisions out.")
    precisions = () if options.no_export else PRECISIONS if options.precisions is None else options.precisions
    if unknown := set(precisions) - set(PARITY):
        raise ValueError(f"--precisions are of {', '.join(PARITY)}, not {', '.join(sorted(unknown))}")
    check_trackers(options.track)
    if recipe.train.tokens_per_step is None:
        with named_options({"questions_per_step"}):
            batch_of_step(recipe.train.questions_per_step, recipe.train.accumulate)
    check_strategy(recipe.objective.strategy, heads=recipe.shape.heads, teachers=len(options.teacher))
    for option in ("name", "version"):
        if (value := getattr(options, option)) is not None and not is_name(value):
            raise ValueError(f"--{option} {value!r} is not a name: letters, digits, '.', '_' and '-', at most 96")
    size = chosen_size(options.dev, options.dev_questions)
    terms = None if options.terms is None else read_terms(options.terms)
    check_device(options.device)
    check_writable(options.out)
    return precisions, terms, size


def _finished(run: TrainingRun, options: DistilOptions) -> Trained | None:
    """The checkpoint if nothing is left to train, which a line tells; None when the run is to be extended.

    Raises ValueError when the folder holds another checkpoint, or when only its names or forms are to differ.
    """
    checkpoint, record = run.result, run.record
    summary = read_summary(checkpoint) or {}
    if summary.get("digest") not in {record.digest, record.result_digest}:
        raise ValueError(f"{checkpoint} is not of this run: move it away")
    if not run.is_finished:
        return None
    there = read_checkpoint(checkpoint)
    forms = set() if options.no_export else None if options.precisions is None else set(options.precisions)
    requested: dict[str, tuple[Any, Any]] = {
        "name": (options.name, there.config.name),
        "version": (options.version, there.manifest.version),
        "precisions": (forms, set(there.precisions)),
    }
    changes = [name for name, (wanted, have) in requested.items() if wanted is not None and wanted != have]
    if options.terms is not None and read_terms(options.terms) not in (checkpoint / "README.md").read_text():
        changes.append("terms")
    if changes:
        other = f"export {checkpoint} OUT" if changes[0] == "precisions" else f"card {checkpoint}"
        raise ValueError(f"{checkpoint} is finished; `cerberank {other} --{changes[0]} ...` changes that")
    note_of(
        "distil",
        f"{checkpoint} is finished ({there.config.name}@{there.manifest.version}, dev MAP "
        f"{summary['dev_map']:.2f}); nothing was done. --steps of more than {summary['settings']['steps']} extends it",
    )
    return Trained(checkpoint=checkpoint, dev_map=summary["dev_map"])


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelNames:
    """The name, licence terms and languages of the new model."""

    name: str
    terms: str | None
    languages: tuple[str, ...] = ()
    """The languages that the earlier model states; empty for a new run."""
    kept: tuple[str, ...] | None = None
    """The properties that are kept of the earlier model, in words; None if the run is not extended."""

    def said(self, version: str) -> str:
        """A suffix for a line with the kept properties and the version of an extended model; empty for a new run."""
        if self.kept is None:
            return ""
        return f"; extended: {', '.join([*(f'{each} kept' for each in self.kept), f'version {version}'])}"


def names_of(out: Path, *, name: str | None, default: str, terms: str | None) -> ModelNames:
    """The name and terms that the options give, else those of the model in `out`, else the default name and no terms.

    Those of the model are read from its files, because `cerberank checkpoint card` may have changed them.
    """
    there = _latest(out)
    if there is None:
        return ModelNames(name=name or default, terms=terms)
    config = json.loads((there / "config.json").read_bytes())
    own: str = config["name"]
    stated = terms_of((there / "README.md").read_text(encoding="utf-8"))
    kept = [f"name {own}"] if name is None and own != default else []
    kept += ["terms"] if terms is None and stated is not None else []
    return ModelNames(
        name=name or own,
        terms=stated if terms is None else terms,
        languages=tuple(config.get("languages", ())),
        kept=tuple(kept),
    )


def _latest(out: Path) -> Path | None:
    """The run's checkpoint. If a killed call had moved it aside, the one that was moved aside last."""
    if (out / "checkpoint").is_dir():
        return out / "checkpoint"
    aside = [path for path in out.glob("checkpoint-*") if (path / "config.json").is_file()]
    return max(aside, key=lambda path: (path / "manifest.json").stat().st_mtime_ns, default=None)


def closing(checkpoint: Path, *, name: str, figures: str, forms: Sequence[str], train: str, kept: str = "") -> str:
    """The last lines of a run with ONNX graphs in these `forms`: its result, and the commands that come next.

    int8 ranges are measured on the data `train`. `kept` is a suffix that begins with a semicolon, and says what an
    extended run has kept of its earlier model.
    """
    folder = shlex.quote(str(checkpoint))
    written = ", ".join(["weights", *(f"ONNX {form}" for form in forms)])
    exported = checkpoint.parent / "exported"
    served = folder if forms else shlex.quote(str(exported))
    backend = "" if forms else " --backend torch"
    steps = [("measure", f"cerberank evaluate --checkpoint {folder}{backend} --data FORMAT:PATH")]
    if not forms:
        steps.append(("export", f"cerberank export {folder} {served} --calibrate {shlex.quote(train)}"))
    steps += [
        ("keep", f"cerberank store push {served} STORE --label stable"),
        ("serve", f"CERBERANK_CHECKPOINT={served} cerberank serve"),
    ]
    lines = [f"{checkpoint}: {name}, {figures}; {written}{kept}"]
    return "\n".join(lines + [f"  {verb + ':':<9}{command}" for verb, command in steps])


def dev_map(
    encoder: PairEncoder,
    questions: Sequence[Question],
    device: str,
    processes: Processes = Processes(),  # noqa: B008 - frozen
) -> Callable[[RankingNetwork], dict[str, float]]:
    """A function that measures MAP on `questions`, in percent: `final`, and that of every exit and head.

    Each process ranks a part of the questions, and all get the figures of the whole.
    """

    def measure(ranker: RankingNetwork) -> dict[str, float]:
        evaluation = Evaluation()
        for question, ranks in rank_questions(TorchBackend(ranker, device=device), encoder, processes.part(questions)):
            evaluation.add(question, ranks)
        whole = Evaluation.joined(processes.gather(evaluation))
        return {name: figures.mean["map"] for name, figures in whole.figures().items()}

    return measure
