"""What a reader has ignored, and what is odd about the questions that it gave: one line for people."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from cerberank_training.data.question import DataError, Question

Notes = Counter[str]
"""How often something was ignored or left out, by its name for people."""

EMPTY_QUESTION, EMPTY_TEXT = "questions without a text", "candidates without a text"
NO_POSITIVE, NO_NEGATIVE = "questions without a positive", "questions without a negative"


def noted(
    questions: Iterable[Question], spec: str, notes: Notes, report: Callable[[str], object]
) -> Iterator[Question]:
    """The same questions; after the last one, `report` gets a line if there is anything to tell.

    Raises DataError when there are questions and none of them, or no candidate, has a text.
    """
    asked = candidates = 0
    for question in questions:
        asked += 1
        candidates += len(question.candidates)
        positives = sum(row.relevant for row in question.candidates)
        notes[EMPTY_QUESTION] += not question.text.strip()
        notes[EMPTY_TEXT] += sum(not row.candidate.text.strip() for row in question.candidates)
        notes[NO_POSITIVE] += not positives
        notes[NO_NEGATIVE] += positives == len(question.candidates)
        yield question
    if asked and (asked == notes[EMPTY_QUESTION] or candidates == notes[EMPTY_TEXT]):
        raise DataError(f"{spec}: no question, or no candidate, has a text")
    if told := [f"{count} {name}" for name, count in notes.items() if count]:
        report(f"{spec}: of {asked} questions with {candidates} candidates: {', '.join(told)}")


def print_on_stderr(line: str) -> None:
    """Print a line where it does not mix with a command's output."""
    print(line, file=sys.stderr)  # noqa: T201
