"""`cerberank data count`: the questions, pairs and positives of data sets."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, get_args

from cyclopts import Parameter

from cerberank_models.commands.values import data_help
from cerberank_models.output import say
from cerberank_models.progress import progress
from cerberank_training.data import Subset, read_questions
from cerberank_training.data.question import within
from cerberank_training.evaluation.report import table


def count(*, data: Annotated[tuple[str, ...], Parameter(help=data_help("Data set; repeat for several"))]) -> None:
    """Count the questions, pairs and positives of data sets.

    A row for each subset that has questions: all of them (raw), those with a positive (clean), and those with a
    positive and a negative (strict). docs/public-data.md has these numbers for the sets of the papers.

    Args:
        data: Data.
    """
    rows = []
    for name in data:
        questions, pairs, positives = Counter[Subset](), Counter[Subset](), Counter[Subset]()
        for question in progress(read_questions(name), unit="question"):
            for subset in get_args(Subset):
                if within(question.labels, question.missed, subset):
                    questions[subset] += 1
                    pairs[subset] += len(question.labels)
                    positives[subset] += sum(label > 0 for label in question.labels)
        rows += [
            [name, subset, f"{number:,}", f"{pairs[subset]:,}", f"{positives[subset]:,}"]
            for subset, number in questions.items()
        ]
    say(table(["data", "subset", "questions", "pairs", "positives"], rows))
