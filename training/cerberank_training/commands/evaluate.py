"""`cerberank evaluate`: figures of a checkpoint by exit, head and drop schedule, or of a running service."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import numpy as np
from tqdm import tqdm

from cerberank_models.backends import open_backend
from cerberank_models.bundled import default_checkpoint
from cerberank_models.checkpoint import CheckpointError, read_checkpoint
from cerberank_models.config import RankerConfig
from cerberank_training.data import DataError, Question, read_questions
from cerberank_training.evaluate import Evaluation, Figures, markdown, rank_questions
from cerberank_training.remote import rank_remotely

ItemT = TypeVar("ItemT")


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        questions = _sample(read_questions(arguments.data), arguments.sample, arguments.seed, arguments.subset)
        evaluation, layers = _evaluate(arguments, questions)
        figures = evaluation.figures(arguments.subset)
    except (DataError, CheckpointError, ValueError) as error:
        print(f"cerberank evaluate: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(markdown(figures, layers))  # noqa: T201
    if evaluation.without_positive:
        print(f"{evaluation.without_positive} questions without a positive are not in the means.")  # noqa: T201
    _write(arguments, evaluation, figures)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank evaluate", description=__doc__)
    parser.add_argument("--data", required=True, metavar="FORMAT:PATH", help="such as wikiqa:WikiQA-test.tsv")
    parser.add_argument("--checkpoint", type=Path, help="folder (default: the bundled one)")
    parser.add_argument("--url", help="evaluate the service at this address instead")
    parser.add_argument("--backend", choices=("onnx", "torch"), default="onnx")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--against", help="another precision: report top-1 agreement and MAP difference")
    parser.add_argument("--subset", choices=("clean", "strict"), default="clean")
    parser.add_argument("--schedule", action="append", type=_schedule, default=[], metavar="A,B", help="drop ratios")
    parser.add_argument("--sample", type=int, help="this many questions, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--per-question", type=Path, help="write one JSON line a question here")
    return parser


def _schedule(text: str) -> tuple[float, ...]:
    return tuple(float(alpha) for alpha in text.split(","))


def _sample(questions: Iterable[Question], size: int | None, seed: int, name: str) -> list[Question]:
    """A random sample of the questions that have a positive (for `strict`, of those with both labels)."""
    usable = [q for q in questions if any(q.labels) and (name == "clean" or not all(q.labels))] if size else questions
    everything = list(usable)
    return everything if size is None else random.Random(seed).sample(everything, min(size, len(everything)))


def _evaluate(arguments: argparse.Namespace, questions: list[Question]) -> tuple[Evaluation, list[float] | None]:
    evaluation = Evaluation()
    if arguments.url:
        schedule = arguments.schedule[0] if arguments.schedule else None
        for question, ranks in _bar(rank_remotely(arguments.url, questions, drop_ratio=schedule), len(questions)):
            evaluation.add(question, ranks)
        return evaluation, None
    checkpoint = read_checkpoint(arguments.checkpoint or default_checkpoint())
    encoder = checkpoint.encoder()
    backend = open_backend(checkpoint, kind=arguments.backend, precision=arguments.precision)
    ranked = rank_questions(backend, encoder, questions, arguments.schedule)
    if arguments.against is None:
        for question, ranks in _bar(ranked, len(questions)):
            evaluation.add(question, ranks)
        return evaluation, stage_layers(checkpoint.config)
    other = open_backend(checkpoint, kind=arguments.backend, precision=arguments.against)
    agree = []
    for (question, ranks), (_, others) in _bar(
        zip(ranked, rank_questions(other, encoder, questions), strict=True), len(questions)
    ):
        evaluation.add(question, {"final": ranks["final"], arguments.against: others["final"]})
        agree.append(int(np.argmin(ranks["final"])) == int(np.argmin(others["final"])))
    print(f"Top-1 agreement of {arguments.precision} and {arguments.against}: {100 * np.mean(agree):.1f} %")  # noqa: T201
    return evaluation, stage_layers(checkpoint.config)


def stage_layers(config: RankerConfig) -> list[float]:
    """Body layers of each stage; the heads' first-token layers count as half a layer in all (DESIGN, Speed)."""
    layers = [float(stage.stop - stage.start) for stage in config.stages]
    if config.architecture.heads and config.architecture.head_layers:
        full = (config.architecture.head_layers - 1) * config.architecture.heads
        layers[-1] += full + 0.5
    return layers


def _bar(items: Iterable[ItemT], total: int) -> Iterator[ItemT]:
    yield from tqdm(items, total=total, unit="question", disable=None)


def _write(arguments: argparse.Namespace, evaluation: Evaluation, figures: Mapping[str, Figures]) -> None:
    if arguments.json:
        content = {"data": arguments.data, "sample": arguments.sample, "seed": arguments.seed}
        content["figures"] = {name: asdict(row) for name, row in figures.items()}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if arguments.per_question:
        lines = (json.dumps(record) + "\n" for record in evaluation.per_question())
        arguments.per_question.write_text("".join(lines), encoding="utf-8")
