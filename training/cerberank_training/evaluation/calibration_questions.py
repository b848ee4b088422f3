"""Makes questions as assistants meet them from labelled ones: many without an answer, and with short lists."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.data.bm25 import Bm25Index

SINGLE, SHORT = 0.25, 0.25
"""The shares of questions that get one candidate, and SHORTEST to LONGEST candidates."""
SHORTEST, LONGEST = 2, 5
MOST = 50
"""The most candidates of the other questions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedQuestions:
    """Questions with the lists of candidates that an assistant would send."""

    questions: tuple[Question, ...]
    removed: int
    """The number of questions whose answers were removed."""


def as_asked(questions: Sequence[Question], *, unanswered: float, seed: int) -> AskedQuestions:
    """The questions, of which a share `unanswered` has no answer, in their order.

    Answers are removed from random questions that have an answer and a wrong candidate, until the share is reached.
    Half of the lists stay whole up to MOST candidates. Of longer and of the other lists the candidates that a search by
    words finds first are left, and one answer of a question that has one: a search that finds no answer still returns
    texts that share words with the question.
    """
    rng = random.Random(seed)
    removable = [place for place, each in enumerate(questions) if any(each.labels) and not all(each.labels)]
    missing = round(unanswered * len(questions)) - sum(not any(each.labels) for each in questions)
    removed = set(rng.sample(removable, max(0, min(missing, len(removable)))))
    asked = []
    for place, question in enumerate(questions):
        rows = question.candidates
        if place in removed:
            rows = tuple(row for row in rows if not row.relevant)
        draw, size = rng.random(), MOST
        if draw < SINGLE + SHORT:
            size = 1 if draw < SINGLE else rng.randint(SHORTEST, LONGEST)
        if size < len(rows):
            rows = _found_first(question.text, rows, size, rng)
        asked.append(replace(question, candidates=rows))
    return AskedQuestions(questions=tuple(asked), removed=len(removed))


def _found_first(
    text: str, rows: tuple[LabelledCandidate, ...], size: int, rng: random.Random
) -> tuple[LabelledCandidate, ...]:
    """At most `size` of the candidates, in their order: a random answer, if there is one, and the first by BM25."""
    answers = [place for place, row in enumerate(rows) if row.relevant]
    found = answers and [rng.choice(answers)]
    texts = [row.candidate.text for row in rows]
    try:
        order = Bm25Index(texts).top(text, len(texts))
    except ValueError:  # no text has a word
        order = []
    order += [place for place in range(len(rows)) if place not in set(order)]
    found += [place for place in order if place not in found][: size - len(found)]
    return tuple(rows[place] for place in sorted(found))
