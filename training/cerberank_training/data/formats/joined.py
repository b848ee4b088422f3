"""Joins rows of positives and negatives, such as triples, so that a question comes once with all its candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from cerberank_training.data.notes import Notes
from cerberank_training.data.question import LabelledCandidate, Question

MOST_HELD = 256 << 20
"""The memory in bytes, as estimated by `_size`, that questions may take until they are passed on."""
APART = "questions that come again too far from their first rows to be joined (sort the file)"
"""The name of their number in the notes."""
OBJECTS = 300
"""The bytes of Python's objects for a candidate, without its text."""


def joined(questions: Iterable[Question], key: Callable[[Question], str], notes: Notes) -> Iterator[Question]:
    """Yield the questions in the order of their first rows; those with the same key are one. A candidate comes once.

    Questions are held until they take MOST_HELD bytes, and then passed on, so that a sorted file of any size is joined
    whole. A question that comes again after that is another question, and counted.
    """
    by_key: dict[str, tuple[Question, dict[LabelledCandidate, None]]] = {}
    ended: set[int] = set()
    size = 0
    for question in questions:
        name = key(question)
        if name not in by_key:
            if size >= MOST_HELD:
                yield from _questions(by_key)
                ended.update(map(hash, by_key))
                by_key, size = {}, 0
            notes[APART] += hash(name) in ended
            by_key[name] = question, {}
        candidates = by_key[name][1]
        for row in question.candidates:
            if row not in candidates:
                candidates[row] = None
                size += _size(row)
    yield from _questions(by_key)


def _questions(by_key: dict[str, tuple[Question, dict[LabelledCandidate, None]]]) -> Iterator[Question]:
    return (replace(question, candidates=tuple(candidates)) for question, candidates in by_key.values())


def _size(row: LabelledCandidate) -> int:
    return len(row.candidate.text) + OBJECTS
