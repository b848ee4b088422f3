"""The questions that choose a run's weights, checked before anything is trained."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from cerberank_training.data import DataError, Question, open_questions

DRAWN = 300
"""How many questions are drawn where nothing is said."""
Size = int | Literal["all"]


def dev_size(text: str) -> Size:
    """The value of `--dev-questions`; raises ValueError."""
    return "all" if text == "all" else int(text)


def chosen_size(spec: str, size: Size | None) -> Size:
    """How many questions of `FORMAT:PATH` are meant: those given, else 300, of asnq all, as CERBERUS and CT have it.

    Raises ValueError for a number of less than 1.
    """
    if size is None:
        return "all" if spec.startswith("asnq:") else DRAWN
    if size != "all" and size < 1:
        raise ValueError(f"--dev-questions is {size}; it must be at least 1, or all")
    return size


def dev_set(spec: str, size: Size) -> Sequence[Question]:
    """The questions of `FORMAT:PATH`, all, or `size` of them drawn with seed 0.

    Raises DataError when there are none, and when every ranking of them would have the same MAP.
    """
    questions = open_questions(spec)
    chosen = questions if size == "all" else random.Random(0).sample(questions, min(size, len(questions)))
    if not len(chosen):
        raise DataError(f"--dev {spec} holds no question: there is nothing to choose weights by")
    if not any(question.answerable for question in chosen):
        raise DataError(f"--dev {spec}: {_all(chosen, questions)} without a positive candidate: MAP is undefined")
    if not any(any(question.labels) and not all(question.labels) for question in chosen):
        raise DataError(
            f"--dev {spec}: {_all(chosen, questions)} without a positive and a negative candidate, "
            "so that every ranking has the same MAP"
        )
    return chosen


def _all(chosen: Sequence[Question], questions: Sequence[Question]) -> str:
    drawn = "" if len(chosen) == len(questions) else f" that were drawn of {len(questions)}"
    return f"all {len(chosen)} questions{drawn} are"


def measured(questions: Sequence[Question]) -> int:
    """How many of the questions MAP is defined for."""
    return sum(question.answerable for question in questions)
