"""`cerberank data sample`: the groups of a training run, written beforehand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cerberank_models.commands.values import Count, Whole
from cerberank_models.output import note
from cerberank_models.progress import progress
from cerberank_training.commands.recipe_options import read_recipe, recipe_help
from cerberank_training.data import open_questions
from cerberank_training.data.sampling import Group, possible_sampling, sampler_for


def sample(
    *,
    recipe: Annotated[str, Parameter(help=recipe_help())],
    train: str,
    questions: Count,
    out: Path,
    seed: Whole = 1,
) -> None:
    """Write the groups that a recipe would train on, so that teachers can score them beforehand.

    The groups follow from data, recipe and seed alone. The file is generic JSONL (gzip if its name ends in .gz): one
    line a question, its candidates in the order of the step.

    Args:
        recipe: Recipe.
        train: Data as FORMAT:PATH.
        questions: Number of groups; epochs repeat as needed.
        out: File to make.
        seed: Random seed.
    """
    chosen = read_recipe(recipe).recipe
    data = open_questions(train, training=True)
    sampling = possible_sampling(train, chosen.sampling, report=_say)
    sampler = sampler_for(train, data, sampling, seed=seed)
    partial = out.with_name(f".{out.name}.partial")
    with (
        gzip.open(partial, "wt", encoding="utf-8")
        if out.suffix == ".gz"
        else partial.open("w", encoding="utf-8") as file
    ):
        for index in progress(range(questions), unit="question"):
            file.write(_line(sampler.step(index, 1)[0]))
    partial.replace(out)
    _say(f"{out} holds {questions} groups; next: cerberank data score CACHE --teacher TEACHER --data jsonl:{out}")


def _say(line: str) -> None:
    note(f"cerberank data sample: {line}")


def _line(group: Group) -> str:
    candidates = [
        {"text": candidate.text, "label": int(label), "previous": candidate.previous, "next": candidate.next}
        for candidate, label in zip(group.candidates, group.labels, strict=True)
    ]
    return json.dumps({"question": group.question, "candidates": candidates}, ensure_ascii=False) + "\n"
