"""`cerberank data sample`: write the groups that a recipe would train on, so that teachers can score them beforehand.

The groups follow from data, recipe and seed alone. Reads FORMAT:PATH, writes generic JSONL (gzip when OUT ends in .gz):
one line a question, its candidates in the order of the step.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path

from tqdm import tqdm

from cerberank_training.commands.recipe_files import add_recipe_option, read_recipe
from cerberank_training.data import DataError, open_questions
from cerberank_training.data.notes import print_on_stderr
from cerberank_training.data.sampling import Group, possible_sampling, sampler_for


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(prog="cerberank data sample", description=__doc__)
    add_recipe_option(parser)
    parser.add_argument("--train", metavar="FORMAT:PATH", required=True)
    parser.add_argument("--questions", type=int, required=True, help="how many groups; epochs repeat as needed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(argv)
    try:
        recipe = read_recipe(arguments.recipe).recipe
        questions = open_questions(arguments.train, training=True)
        sampling = possible_sampling(arguments.train, recipe.sampling, report=_say)
        sampler = sampler_for(arguments.train, questions, sampling, seed=arguments.seed)
        partial = arguments.out.with_name(f".{arguments.out.name}.partial")
        with (
            gzip.open(partial, "wt", encoding="utf-8")
            if arguments.out.suffix == ".gz"
            else partial.open("w", encoding="utf-8") as file
        ):
            for index in tqdm(range(arguments.questions), unit="question", disable=None):
                file.write(_line(sampler.step(index, 1)[0]))
        partial.replace(arguments.out)
        _say(
            f"{arguments.out} holds {arguments.questions} groups; next: cerberank data score --teacher TEACHER --data "
            f"jsonl:{arguments.out} --out CACHE"
        )
    except (DataError, ValueError, OSError) as error:
        print(f"cerberank data sample: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _say(line: str) -> None:
    print_on_stderr(f"cerberank data sample: {line}")


def _line(group: Group) -> str:
    candidates = [
        {"text": candidate.text, "label": int(label), "previous": candidate.previous, "next": candidate.next}
        for candidate, label in zip(group.candidates, group.labels, strict=True)
    ]
    return json.dumps({"question": group.question, "candidates": candidates}, ensure_ascii=False) + "\n"
