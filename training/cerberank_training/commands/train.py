"""`cerberank train`: train a ranker by a recipe; killed and called again, it goes on."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoModel, AutoTokenizer

from cerberank_models.encoding import PairEncoder
from cerberank_models.export import export_checkpoint
from cerberank_models.hugging_face import UnsupportedModelError, initialise, load_weights, ranker_config
from cerberank_models.ranker import Ranker
from cerberank_models.torch_backend import TorchBackend
from cerberank_training.calibration import calibration_texts
from cerberank_training.data import Articles, DataError, Question, articles_path, read_questions
from cerberank_training.evaluate import Evaluation, rank_questions
from cerberank_training.recipes import RECIPES, Recipe, locate
from cerberank_training.sampling import Sampler
from cerberank_training.train import Run

CARD = """# {name}

Trained by `cerberank train --recipe {recipe}` from `{base}` on `{data}`; best dev MAP {dev_map:.1f}.
This card is the one that training writes: add data terms, figures and limits before the checkpoint is given away.
"""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(prog="cerberank train", description=__doc__)
    parser.add_argument("--recipe", choices=sorted(RECIPES), required=True)
    parser.add_argument("--base", required=True, help="path or hub id of the pretrained encoder")
    parser.add_argument("--data", type=Path, required=True, help="folder that the recipe's data lies in")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the run; the checkpoint goes to OUT/checkpoint"
    )
    parser.add_argument("--steps", type=int, help="instead of the recipe's number of steps")
    parser.add_argument("--dev-questions", type=int, default=300, help="questions of dev to choose weights by")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args(argv)
    recipe = RECIPES[arguments.recipe]()
    if arguments.steps:
        recipe = replace(recipe, train=replace(recipe.train, steps=arguments.steps))
    try:
        train(recipe, arguments)
    except (DataError, UnsupportedModelError, ValueError, OSError) as error:
        print(f"cerberank train: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def train(recipe: Recipe, arguments: argparse.Namespace) -> None:
    """Train by `recipe` and write the checkpoint."""
    tokenizer = AutoTokenizer.from_pretrained(arguments.base).backend_tokenizer
    ranker = build_student(recipe, arguments.base)
    encoder = _encoder(tokenizer, ranker)
    spec = locate(recipe.train_data, arguments.data)
    questions = list(read_questions(spec))
    articles = articles_path(Path(spec.partition(":")[2]))
    sampler = Sampler(
        questions,
        recipe.sampling,
        seed=recipe.train.seed,
        outside=Articles(articles).outside if articles.exists() else None,
    )
    dev = random.Random(0).sample(
        list(read_questions(locate(recipe.dev_data, arguments.data))), arguments.dev_questions
    )
    run = Run(arguments.out, ranker, sampler, encoder, recipe.train, device=arguments.device)
    best = run.train(dev_map(encoder, dev, arguments.device))
    export_checkpoint(
        ranker,
        tokenizer,
        arguments.out / "checkpoint",
        card=CARD.format(
            name=recipe.name,
            recipe=arguments.recipe,
            base=Path(arguments.base).name,
            data=recipe.train_data,
            dev_map=best,
        ),
        version=f"steps-{recipe.train.steps}-seed-{recipe.train.seed}",
        source=f"recipe {arguments.recipe}",
        metrics={"dev_map": best},
        calibration=calibration_texts(questions),
    )


def build_student(recipe: Recipe, base: str) -> Ranker:
    """The recipe's network with the base's encoder and seeded fresh classifiers and exits."""
    encoder: Any = AutoModel.from_pretrained(base)
    config = ranker_config(
        encoder.config,
        name=recipe.name,
        body_layers=recipe.body_layers,
        heads=recipe.heads,
        exits=recipe.exits,
        encoding=recipe.encoding,
    )
    ranker = Ranker(config, dropout=recipe.train.dropout)
    load_weights(ranker, encoder.state_dict(), fresh_classifier=True)
    initialise(ranker.exits, seed=recipe.train.seed)
    for index, head in enumerate(ranker.heads):
        # Different seeds: with hard labels alone the heads' classifiers are all that sets them apart.
        initialise(head.get_submodule("classifier"), seed=recipe.train.seed + 1 + index)
    return ranker


def dev_map(encoder: PairEncoder, questions: list[Question], device: str) -> Callable[[Ranker], float]:
    """A function that gives the final stage's MAP on `questions`, in percent."""

    def measure(ranker: Ranker) -> float:
        evaluation = Evaluation()
        for question, ranks in rank_questions(TorchBackend(ranker, device=device), encoder, questions):
            evaluation.add(question, {"final": ranks["final"]})
        return evaluation.figures()["final"].mean["map"]

    return measure


def _encoder(tokenizer: Tokenizer, ranker: Ranker) -> PairEncoder:
    return PairEncoder(
        Tokenizer.from_str(tokenizer.to_str()),
        family=ranker.config.transformer.family,
        config=ranker.config.encoding,
        type_vocab_size=ranker.config.transformer.type_vocab_size,
    )
