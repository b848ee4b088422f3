"""`train distil`: train a student by a recipe, on labels or teachers' scores. A killed run resumes when repeated.

Several GPUs or processes: `torchrun --nproc-per-node 4 -m cerberank train distil ...`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.card import read_terms
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.contract import is_name
from cerberank_models.convert.checkpoint import PARITY, ParityError, export_checkpoint
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.encoding import PairEncoder
from cerberank_models.network.ranker import Ranker
from cerberank_training.commands.recipe_files import add_recipe_option, read_recipe
from cerberank_training.commands.recipe_options import add_recipe_options, changed_recipe
from cerberank_training.data import DataError, Question, open_questions
from cerberank_training.data.notes import print_on_stderr
from cerberank_training.data.sampling import SampledGroups, first_sizes, possible_sampling, sampler_for
from cerberank_training.evaluation.evaluate import Evaluation, rank_questions
from cerberank_training.learning.processes import Processes, launched_processes
from cerberank_training.learning.strategies import check_strategy
from cerberank_training.learning.threads import step_work, training_threads
from cerberank_training.learning.train import Run
from cerberank_training.runs.base import find_base, refuse_missing
from cerberank_training.runs.card import FILE as SUMMARY
from cerberank_training.runs.card import dev_metric, read_summary, run_card, summary_of
from cerberank_training.runs.content import data_content
from cerberank_training.runs.dev_set import Size, check_held_out, chosen_size, dev_set, dev_size, in_common, measured
from cerberank_training.runs.kept import names_of
from cerberank_training.runs.place import check_device, check_writable, writing
from cerberank_training.runs.record import NOTHING_SAVED, RunRecord, open_record, said_of_start
from cerberank_training.runs.software import software
from cerberank_training.runs.step_log import dev_at_start, last_step
from cerberank_training.students.calibration import calibration_texts
from cerberank_training.students.recipes import Recipe, settings_of
from cerberank_training.students.shapes import build_student, check_base
from cerberank_training.teachers.completeness import refuse_missing_scores
from cerberank_training.teachers.origin import cache_content, teacher_origin
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache
from cerberank_training.tracking.closing import closing
from cerberank_training.tracking.opening import add_tracking_option, check_trackers, open_trackers

PRECISIONS = ("fp32", "int8")
LOG = "log.jsonl"


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = parser().parse_args(argv)
    try:
        named = read_recipe(arguments.recipe)
        arguments.recipe = named.title
        recipe = changed_recipe(named.recipe, arguments)
        with writing(arguments.out):
            distil(recipe, arguments)
    except (DataError, ParityError, UnsupportedModelError, ValueError, OSError) as error:
        print(f"cerberank train distil: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = argparse.ArgumentParser(prog="cerberank train distil", description=__doc__, allow_abbrev=False)
    add_recipe_option(parser)
    parser.add_argument("--base", required=True, help="path or hub id of an encoder, or a checkpoint to train further")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--train", metavar="FORMAT:PATH", help="questions to sample from at every step")
    source.add_argument(
        "--groups", metavar="FORMAT:PATH", help="groups that `cerberank data sample` wrote, taken in order"
    )
    parser.add_argument("--dev", metavar="FORMAT:PATH", required=True, help="questions to choose weights by")
    parser.add_argument(
        "--dev-questions",
        type=dev_size,
        metavar="N|all",
        help="how many of them to sample, or `all` (default: 300, of asnq all)",
    )
    parser.add_argument("--teacher", type=Path, action="append", default=[], help="a score cache; repeat per teacher")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; the result is OUT/checkpoint")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:N")
    forms = parser.add_mutually_exclusive_group()
    precisions = "forms for ONNX to write beside the weights (default: fp32,int8); '' for none"
    forms.add_argument("--precisions", type=_names, help=precisions)
    later = "write the weights alone, in seconds; `cerberank export` makes the forms later"
    forms.add_argument("--no-export", dest="precisions", action="store_const", const=(), help=later)
    add_tracking_option(parser)
    parser.add_argument("--name", help="the model's name in stores and services (default: OUT's)")
    version = "its version there (default: strategy, steps, seed and a digest of the run's record)"
    parser.add_argument("--version", help=version)
    parser.add_argument("--terms", metavar="TEXT|FILE", help="licence and terms of the data, for the model card")
    add_recipe_options(parser)
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def distil(recipe: Recipe, arguments: argparse.Namespace) -> None:
    """Train by `recipe` and write the checkpoint, or say that this was done."""
    precisions, terms, size = _checked(recipe, arguments)
    out: Path = arguments.out
    refuse_missing(arguments.base)
    check_base(arguments.base, recipe.shape)
    base = find_base(arguments.base)
    dev = dev_set(arguments.dev, size)
    teachers = [TeacherScoreCache.open(path) for path in arguments.teacher]
    data = arguments.groups or arguments.train
    if arguments.train:
        explicit = [name for name in ("hard", "hard_pool", "random") if getattr(arguments, name) is not None]
        sampling = possible_sampling(arguments.train, recipe.sampling, explicit=explicit, report=_say)
        recipe = replace(recipe, sampling=sampling)
    questions = open_questions(data, training=True)
    groups = (
        SampledGroups(questions)
        if arguments.groups
        else sampler_for(arguments.train, questions, recipe.sampling, seed=recipe.train.seed)
    )
    content, dev_content = data_content(data, questions), data_content(arguments.dev, dev)
    check_held_out(arguments.dev, dev_content, train=data, train_content=content)
    places = {name: str(value) for name in ("train", "groups", "dev", "out") if (value := getattr(arguments, name))}
    record = open_record(
        out,
        "distil",
        bound={
            "base": base.content,
            "data": {"drawn": not arguments.groups} | content,
            "dev": {"size": size} | dev_content,
            "teachers": [cache_content(cache, path) for cache, path in zip(teachers, arguments.teacher, strict=True)],
            "settings": settings_of(recipe, drawn=not arguments.groups),
            "processes": launched_processes(),
        },
        free={
            **{name: getattr(recipe.train, name) for name in ("steps", "patience", "save_every")},
            "recipe": arguments.recipe,
            "names": places | {"base": base.name, "place": arguments.base, "commit": base.commit},
            "device": arguments.device,
        },
        software=software(),
        begun=(out / "state.pt").is_file() or (out / "checkpoint").is_dir(),
    )
    checkpoint = out / "checkpoint"
    if checkpoint.is_dir() and _is_finished(checkpoint, record, arguments):
        return
    refuse_missing_scores(dict(zip(arguments.teacher, teachers, strict=True)), groups, data=data)
    names = names_of(out, asked=arguments.name, default=out.resolve().name, terms=terms)
    recipe = replace(recipe, shape=replace(recipe.shape, name=names.name))
    if record.planned["steps"] != recipe.train.steps:
        recipe = replace(recipe, train=replace(recipe.train, planned=record.planned["steps"]))
    student = build_student(recipe.shape, base.place, seed=recipe.train.seed, dropout=recipe.train.dropout)
    encoder = student.encoder()
    run = Run(
        out,
        student.ranker,
        groups,
        encoder,
        recipe.train,
        objective=recipe.objective,
        teachers=teachers,
        device=arguments.device,
        trackers=open_trackers(arguments.track, out, name=out.name, settings=record.bound | record.free),
    )
    first = Processes.join(torch.device(arguments.device)).rank == 0
    if first:
        record.write(out)
        anew = NOTHING_SAVED if record.is_repeated and not (out / "state.pt").is_file() else ""
        starts = f"{student.start.replace(base.place, arguments.base)}; {first_sizes(run.first_step())}"
        for line in filter(None, (anew, in_common(dev, questions.question_texts()), starts)):
            _say(line)
    work = step_work(student.ranker, recipe.train, recipe.sampling, max_length=recipe.shape.encoding.max_length)
    with training_threads(work):
        best = run.train(dev_map(encoder, dev, arguments.device))
    if not first:
        return
    start = dev_at_start(out / LOG)
    record = record.with_results(reached=last_step(out / LOG), best=best, start=start, questions=measured(dev))
    record.write(out)
    summary = summary_of(record, teachers=[teacher_origin(cache) for cache in teachers])
    if checkpoint.is_dir():  # of the run before it was extended
        checkpoint.rename(out / f"checkpoint-{(read_summary(checkpoint) or {})['digest']}")
    version = (
        arguments.version
        or f"{recipe.objective.strategy}-steps-{recipe.train.steps}-seed-{recipe.train.seed}-{record.digest}"
    )
    export_checkpoint(
        student.ranker,
        student.tokenizer,
        checkpoint,
        card=run_card(summary, name=names.name, architecture=student.ranker.config.architecture, terms=names.terms),
        version=version,
        source=f"recipe {arguments.recipe}, run {record.digest}",
        metrics={dev_metric(summary): best},
        precisions=precisions,
        calibration=calibration_texts(questions),
        further={SUMMARY: json.dumps(summary, indent=2).encode() + b"\n"},
    )
    figures = f"dev MAP {best:.2f} on {measured(dev)} questions of {arguments.dev}{said_of_start(start, best)}"
    kept = names.said(version)
    print(closing(checkpoint, name=names.name, figures=figures, forms=precisions, train=data, kept=kept))  # noqa: T201


def _checked(recipe: Recipe, arguments: argparse.Namespace) -> tuple[tuple[str, ...], str | None, Size]:
    """The forms, the terms and the number of dev questions that are asked for.

    Raises what is wrong with any option that can be told without reading data or a base.
    """
    precisions = PRECISIONS if arguments.precisions is None else arguments.precisions
    if unknown := set(precisions) - set(PARITY):
        raise ValueError(f"--precisions are of {', '.join(PARITY)}, not {', '.join(sorted(unknown))}")
    check_trackers(arguments.track)
    check_strategy(recipe.objective.strategy, heads=recipe.shape.heads, teachers=len(arguments.teacher))
    for option in ("name", "version"):
        if (value := getattr(arguments, option)) is not None and not is_name(value):
            raise ValueError(f"--{option} {value!r} is no name: letters, digits, '.', '_' and '-', at most 96")
    if arguments.name is None and not is_name(name := arguments.out.resolve().name):
        raise ValueError(f"--out ends in {name!r}, which cannot name a model: give --name")
    size = chosen_size(arguments.dev, arguments.dev_questions)
    terms = None if arguments.terms is None else read_terms(arguments.terms)
    check_device(arguments.device)
    check_writable(arguments.out)
    return precisions, terms, size


def _is_finished(checkpoint: Path, record: RunRecord, arguments: argparse.Namespace) -> bool:
    """Whether the checkpoint is all that was asked for, which is then said; False when the run is to be extended.

    Raises ValueError when the folder holds another checkpoint, or when only its names or forms are to differ.
    """
    summary = read_summary(checkpoint) or {}
    if summary.get("digest") not in {record.digest, record.result_digest}:
        raise ValueError(f"{checkpoint} is not of this run: move it away")
    if not record.ended:
        if not (checkpoint.parent / "state.pt").is_file():
            raise ValueError(f"{checkpoint.parent} has no state.pt any more: the run cannot be extended")
        return False
    there = read_checkpoint(checkpoint)
    asked = {
        "name": (arguments.name, there.config.name),
        "version": (arguments.version, there.manifest.version),
        "precisions": (None if arguments.precisions is None else set(arguments.precisions), set(there.precisions)),
    }
    changes = [name for name, (wanted, have) in asked.items() if wanted is not None and wanted != have]
    if arguments.terms is not None and read_terms(arguments.terms) not in (checkpoint / "README.md").read_text():
        changes.append("terms")
    if changes:
        other = f"export {checkpoint} OUT" if changes[0] == "precisions" else f"card {checkpoint}"
        raise ValueError(f"{checkpoint} is finished; `cerberank {other} --{changes[0]} ...` changes that")
    _say(
        f"{checkpoint} is finished ({there.config.name}@{there.manifest.version}, dev MAP "
        f"{summary['dev_map']:.2f}); nothing was done. --steps of more than {summary['settings']['steps']} extends it"
    )
    return True


def _say(line: str) -> None:
    """Print a line of the first process of a run."""
    if os.environ.get("RANK", "0") == "0":
        print_on_stderr(f"cerberank train distil: {line}")


def dev_map(encoder: PairEncoder, questions: Sequence[Question], device: str) -> Callable[[Ranker], dict[str, float]]:
    """A function that measures MAP on `questions`, in percent: `final`, and that of every exit and head."""

    def measure(ranker: Ranker) -> dict[str, float]:
        evaluation = Evaluation()
        for question, ranks in rank_questions(TorchBackend(ranker, device=device), encoder, questions):
            evaluation.add(question, ranks)
        return {name: figures.mean["map"] for name, figures in evaluation.figures().items()}

    return measure
