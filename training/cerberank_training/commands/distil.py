"""`cerberank distil`: train a student by a recipe, on labels or teachers' scores. A killed run resumes when repeated.

Several GPUs or processes: `torchrun --nproc-per-node 4 -m cerberank_models distil ...`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Literal

import torch

from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.encoding import PairEncoder
from cerberank_models.export.checkpoint import PARITY, export_checkpoint
from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.network.ranker import Ranker
from cerberank_training.commands.recipe_options import add_recipe_options, changed_recipe
from cerberank_training.commands.recipes.read import add_recipe_option, read_recipe
from cerberank_training.commands.strategies.runs import SETTINGS, keep_settings
from cerberank_training.data import DataError, Question, open_questions
from cerberank_training.data.sampling import SampledGroups, sampler_for
from cerberank_training.evaluation.evaluate import Evaluation, rank_questions
from cerberank_training.learning.processes import Processes
from cerberank_training.learning.strategies import check_strategy
from cerberank_training.learning.threads import step_work, training_threads
from cerberank_training.learning.train import Groups, Run
from cerberank_training.students.calibration import calibration_texts
from cerberank_training.students.model_card import settings_of, student_card
from cerberank_training.students.recipes import Recipe
from cerberank_training.students.shapes import build_student
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache
from cerberank_training.tracking.closing import closing
from cerberank_training.tracking.opening import add_tracking_option, check_trackers, open_trackers

BOUND = ("base", "train", "groups", "dev", "dev_questions", "teacher")
"""The options, besides the recipe's settings, with which a run that was begun must go on."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = parser().parse_args(argv)
    try:
        named = read_recipe(arguments.recipe)
        arguments.recipe = named.title
        distil(changed_recipe(named.recipe, arguments), arguments)
    except (DataError, UnsupportedModelError, ValueError, OSError) as error:
        print(f"cerberank distil: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = argparse.ArgumentParser(prog="cerberank distil", description=__doc__, allow_abbrev=False)
    add_recipe_option(parser)
    parser.add_argument("--base", required=True, help="path or hub id of an encoder, or a checkpoint to train further")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--train", metavar="FORMAT:PATH", help="questions to sample from at every step")
    source.add_argument("--groups", metavar="FORMAT:PATH", help="groups that `cerberank sample` wrote, taken in order")
    parser.add_argument("--dev", metavar="FORMAT:PATH", required=True, help="questions to choose weights by")
    parser.add_argument(
        "--dev-questions",
        type=_dev_size,
        metavar="N|all",
        help="how many of them to sample, or `all` (default: 300, of asnq all)",
    )
    parser.add_argument("--teacher", type=Path, action="append", default=[], help="a score cache; repeat per teacher")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; the result is OUT/checkpoint")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:N")
    forms = parser.add_mutually_exclusive_group()
    precisions = "forms for ONNX to write beside the weights; '' for none"
    forms.add_argument("--precisions", type=_names, default=("fp32", "int8"), help=precisions)
    later = "write the weights alone, in seconds; `cerberank export` makes the forms later"
    forms.add_argument("--no-export", dest="precisions", action="store_const", const=(), help=later)
    add_tracking_option(parser)
    add_recipe_options(parser)
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _dev_size(text: str) -> int | Literal["all"]:
    return "all" if text == "all" else int(text)


def distil(recipe: Recipe, arguments: argparse.Namespace) -> None:
    """Train by `recipe` and write the checkpoint."""
    if unknown := set(arguments.precisions) - set(PARITY):
        raise ValueError(f"--precisions are of {', '.join(PARITY)}, not {', '.join(sorted(unknown))}")
    check_trackers(arguments.track)
    check_strategy(recipe.objective.strategy, heads=recipe.shape.heads, teachers=len(arguments.teacher))
    dev = dev_questions(arguments.dev, arguments.dev_questions)
    teachers = [TeacherScoreCache.open(path) for path in arguments.teacher]
    questions = open_questions(arguments.groups or arguments.train)
    groups: Groups = (
        SampledGroups(questions)
        if arguments.groups
        else sampler_for(arguments.train, questions, recipe.sampling, seed=recipe.train.seed)
    )
    student = build_student(recipe.shape, arguments.base, seed=recipe.train.seed, dropout=recipe.train.dropout)
    encoder = student.encoder()
    shape = {field.name: str(getattr(recipe.shape, field.name)) for field in fields(recipe.shape)}
    settings = {name: vars(arguments)[name] for name in BOUND} | {"shape": shape} | settings_of(recipe)
    if (arguments.out / SETTINGS).is_file():
        keep_settings(arguments.out, settings)
    run = Run(
        arguments.out,
        student.ranker,
        groups,
        encoder,
        recipe.train,
        objective=recipe.objective,
        teachers=teachers,
        device=arguments.device,
        trackers=open_trackers(arguments.track, arguments.out, name=arguments.out.name, settings=settings),
    )
    keep_settings(arguments.out, settings)
    first = Processes.join(torch.device(arguments.device)).rank == 0
    if first:
        print(f"cerberank distil: {student.start}", file=sys.stderr)  # noqa: T201
    work = step_work(student.ranker, recipe.train, recipe.sampling, max_length=recipe.shape.encoding.max_length)
    with training_threads(work):
        best = run.train(dev_map(encoder, dev, arguments.device))
    if not first:
        return
    export_checkpoint(
        student.ranker,
        student.tokenizer,
        arguments.out / "checkpoint",
        card=student_card(recipe, student.ranker.config.architecture, arguments, best),
        version=f"{recipe.objective.strategy}-steps-{recipe.train.steps}-seed-{recipe.train.seed}",
        source=f"recipe {arguments.recipe}",
        metrics={"dev_map": best},
        precisions=arguments.precisions,
        calibration=calibration_texts(questions),
    )
    figures = f"dev MAP {best:.2f} on {len(dev)} questions of {arguments.dev}"
    checkpoint, data = arguments.out / "checkpoint", arguments.groups or arguments.train
    print(closing(checkpoint, name=recipe.shape.name, figures=figures, forms=arguments.precisions, train=data))  # noqa: T201


def dev_questions(spec: str, size: int | Literal["all"] | None) -> Sequence[Question]:
    """The questions of `FORMAT:PATH` that choose weights: `size` drawn with seed 0; None: 300, but of asnq all.

    (CERBERUS and CT choose by all 1,336 of ASNQ's dev set.) Raises ValueError for a size of less than 1.
    """
    if size is None:
        size = "all" if spec.startswith("asnq:") else 300
    if size != "all" and size < 1:
        raise ValueError(f"--dev-questions is {size}; it must be at least 1, or all")
    questions = open_questions(spec)
    return questions if size == "all" else random.Random(0).sample(questions, min(size, len(questions)))


def dev_map(encoder: PairEncoder, questions: Sequence[Question], device: str) -> Callable[[Ranker], dict[str, float]]:
    """A function that measures MAP on `questions`, in percent: `final`, and that of every exit and head."""

    def measure(ranker: Ranker) -> dict[str, float]:
        evaluation = Evaluation()
        for question, ranks in rank_questions(TorchBackend(ranker, device=device), encoder, questions):
            evaluation.add(question, ranks)
        return {name: figures.mean["map"] for name, figures in evaluation.figures().items()}

    return measure
