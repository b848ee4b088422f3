"""The notes of a reader: a line with the numbers of ignored rows and of unusual questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from cerberank_models.calibration import folded
from cerberank_models.request import is_blank
from cerberank_training.data.question import DataError, Question

Notes = Counter[str]
"""Numbers of rows that were ignored or are unusual, by the name of the reason."""

EMPTY_QUESTION, EMPTY_TEXT = "questions without a text", "candidates without a text"
NO_POSITIVE, NO_NEGATIVE = "questions without a positive", "questions without a negative"
TWO_LABELS = "texts with two labels, relevant and not"
COPIES = "unjudged copies of a relevant document"
LEFT_OUT = f"{COPIES} (left out)"


def reported(
    questions: Iterable[Question], spec: str, notes: Notes, report: Callable[[str], object], *, training: bool = False
) -> Iterator[Question]:
    """Yield the questions; after the last one, call `report` with a line if there are notes.

    For `training`, unjudged copies of relevant documents are left out, and questions without other candidates. Raises
    DataError when all questions, or all candidates, have no text.
    """
    count = candidates = 0
    for question in questions:
        count += 1
        candidates += len(question.candidates)
        positives = sum(row.relevant for row in question.candidates)
        notes[EMPTY_QUESTION] += int(is_blank(question.text))
        notes[EMPTY_TEXT] += sum(is_blank(row.candidate.text) for row in question.candidates)
        notes[NO_POSITIVE] += int(positives == 0)
        notes[NO_NEGATIVE] += int(positives == len(question.candidates))
        notes[TWO_LABELS] += _two_labels(question)
        copies = sum(row.copy for row in question.candidates)
        notes[LEFT_OUT if training else COPIES] += copies
        if not training or not copies:
            yield question
        elif copies < len(question.candidates):
            yield replace(question, candidates=tuple(row for row in question.candidates if not row.copy))
    if count and (count == notes[EMPTY_QUESTION] or candidates == notes[EMPTY_TEXT]):
        raise DataError(f"{spec}: no question, or no candidate, has a text")
    if reasons := [f"{number} {name}" for name, number in notes.items() if number]:
        report(f"{spec}: of {count} questions with {candidates} candidates: {', '.join(reasons)}")


def ignored(names: Iterable[str], values: int = 1) -> Notes:
    """The notes on keys or columns that are not read, of which the data have so many values."""
    return Notes({f"values of {name!r} (ignored)": values for name in names})


def _two_labels(question: Question) -> int:
    """The number of texts that are judged both relevant and not relevant."""
    if not any(question.labels) or all(question.labels):
        return 0
    relevant = {folded(row.candidate.text) for row in question.candidates if row.relevant}
    others = {folded(row.candidate.text) for row in question.candidates if not row.relevant and not row.copy}
    return len((relevant & others) - {""})
