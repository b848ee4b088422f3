"""`cerberank distil`: train a student by a recipe, on labels or teachers' scores. A killed run resumes when repeated.

Several GPUs or processes: `torchrun --nproc-per-node 4 -m cerberank_models distil ...`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.config import ExitConfig
from cerberank_models.encoding import PairEncoder
from cerberank_models.export.checkpoint import export_checkpoint
from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.network.ranker import Ranker
from cerberank_training.data import DataError, Question, read_questions
from cerberank_training.data.sampling import SampledGroups, Sampler, sampler_for
from cerberank_training.evaluation.evaluate import Evaluation, rank_questions
from cerberank_training.learning.processes import Processes
from cerberank_training.learning.strategies import STRATEGIES
from cerberank_training.learning.train import Run
from cerberank_training.students.calibration import calibration_texts
from cerberank_training.students.model_card import student_card
from cerberank_training.students.recipes import RECIPES, Recipe
from cerberank_training.students.shapes import build_student
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        distil(_recipe(arguments), arguments)
    except (DataError, UnsupportedModelError, ValueError, OSError) as error:
        print(f"cerberank distil: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank distil", description=__doc__)
    parser.add_argument("--recipe", choices=sorted(RECIPES), required=True)
    parser.add_argument("--base", required=True, help="path or hub id of an encoder, or a checkpoint to train further")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--train", metavar="FORMAT:PATH", help="questions to sample from at every step")
    source.add_argument("--groups", metavar="FORMAT:PATH", help="groups that `cerberank sample` wrote, taken in order")
    parser.add_argument("--dev", metavar="FORMAT:PATH", required=True, help="questions to choose weights by")
    parser.add_argument("--dev-questions", type=int, default=300, help="how many of them to sample")
    parser.add_argument("--teacher", type=Path, action="append", default=[], help="a score cache; repeat per teacher")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; the result is OUT/checkpoint")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:N")
    changes = parser.add_argument_group("replace settings of the recipe")
    changes.add_argument("--strategy", choices=STRATEGIES)
    changes.add_argument("--layers", type=int, help="use only this many layers of the base, the first ones")
    changes.add_argument("--body-layers", type=int, help="b of B_b kH_h; the heads get the base's other layers")
    changes.add_argument("--heads", type=int, help="k of B_b kH_h")
    changes.add_argument("--exits", type=_layers, help="after which body layers, such as 2,4; '' for none")
    changes.add_argument("--max-length", type=int, help="tokens of a pair")
    changes.add_argument("--question-length", type=int, help="most tokens of the question in a pair")
    changes.add_argument("--alpha", type=_numbers, help="weight of the labels: one number, or one per head")
    changes.add_argument("--tau", type=_numbers, help="temperature: one number, or one per head")
    changes.add_argument("--lambda", dest="weights", type=_numbers, help="weights of the heads' losses")
    changes.add_argument("--steps", type=int)
    changes.add_argument("--questions-per-step", type=int)
    changes.add_argument("--tokens-per-step", type=int, help="take questions until a step has so many tokens")
    changes.add_argument(
        "--warmup", type=float, help="in which the rate rises: a share of the steps, or from 1 on steps"
    )
    changes.add_argument("--evaluate-every", type=int)
    changes.add_argument("--learning-rate", type=float)
    changes.add_argument("--seed", type=int)
    return parser


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def _layers(text: str) -> tuple[ExitConfig, ...]:
    return tuple(ExitConfig(after=int(layer)) for layer in text.split(",") if layer)


def _recipe(arguments: argparse.Namespace) -> Recipe:
    recipe = RECIPES[arguments.recipe]()
    given = {name: value for name, value in vars(arguments).items() if value is not None}

    def chosen(*names: str) -> dict[str, Any]:
        return {name: given[name] for name in names if name in given}

    encoding = recipe.shape.encoding.model_copy(update=chosen("max_length", "question_length"))
    return replace(
        recipe,
        shape=replace(recipe.shape, **chosen("layers", "body_layers", "heads", "exits"), encoding=encoding),
        objective=replace(recipe.objective, **chosen("strategy", "alpha", "tau", "weights")),
        train=replace(
            recipe.train,
            **({"tokens_per_step": None} if "questions_per_step" in given else {})
            | chosen(
                "steps", "questions_per_step", "tokens_per_step", "warmup", "evaluate_every", "learning_rate", "seed"
            ),
        ),
    )


def distil(recipe: Recipe, arguments: argparse.Namespace) -> None:
    """Train by `recipe` and write the checkpoint."""
    student = build_student(recipe.shape, arguments.base, seed=recipe.train.seed, dropout=recipe.train.dropout)
    encoder = student.encoder()
    groups: Sampler | SampledGroups
    if arguments.groups:
        questions = list(read_questions(arguments.groups))
        groups = SampledGroups(questions)
    else:
        questions = list(read_questions(arguments.train))
        groups = sampler_for(arguments.train, questions, recipe.sampling, seed=recipe.train.seed)
    dev = list(read_questions(arguments.dev))
    dev = random.Random(0).sample(dev, min(arguments.dev_questions, len(dev)))
    teachers = [TeacherScoreCache.open(path) for path in arguments.teacher]
    run = Run(
        arguments.out,
        student.ranker,
        groups,
        encoder,
        recipe.train,
        objective=recipe.objective,
        teachers=teachers,
        device=arguments.device,
    )
    first = Processes.join(torch.device(arguments.device)).rank == 0
    if first:
        print(f"cerberank distil: {student.start}", file=sys.stderr)  # noqa: T201
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
        calibration=calibration_texts(questions),
    )


def dev_map(encoder: PairEncoder, questions: list[Question], device: str) -> Callable[[Ranker], float]:
    """A function that measures the final stage's MAP on `questions`, in percent."""

    def measure(ranker: Ranker) -> float:
        evaluation = Evaluation()
        for question, ranks in rank_questions(TorchBackend(ranker, device=device), encoder, questions):
            evaluation.add(question, {"final": ranks["final"]})
        return evaluation.figures()["final"].mean["map"]

    return measure
