"""The same questions with few and with many candidates: samples of their own, and candidates of other documents."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from cerberank_models.calibration import folded
from cerberank_models.encoding import Candidate
from cerberank_training.data.question import DataError, LabelledCandidate, Question, sampled

DEPTH_PAIRS = 200_000
"""The default for the largest number of pairs of a depth, such as 100 questions with 2,000 candidates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeepQuestion:
    """A question with its candidates at its greatest depth, which contain those of all other depths."""

    question: Question
    places: NDArray[np.int64]
    """The place [n] of each candidate in the order of drawing. Depth d has the candidates with places below d."""
    depths: tuple[int, ...]
    """The depths at which the question is measured, ascending."""

    def rows(self, depth: int) -> NDArray[np.int64]:
        """The rows of the candidates at a depth, ascending."""
        return np.flatnonzero(self.places < depth)

    def at(self, depth: int) -> Question:
        """The question with its candidates at a depth."""
        rows = self.question.candidates
        return replace(self.question, candidates=tuple(rows[index] for index in self.rows(depth)))


class Documents:
    """The candidates of a data set by document, which is the question's `title` or, without one, the question."""

    def __init__(self, questions: Iterable[Question]) -> None:
        """Keep each distinct text of each document once. Texts that differ only in case and blanks are the same."""
        candidates: dict[str, Candidate] = {}
        self._documents = defaultdict[str, set[str]](set)
        self._asked_of = defaultdict[str, set[str]](set)
        keys: dict[str, str] = {}  # an article's sentences occur once for each of its questions
        for question in questions:
            document = _document(question)
            self._asked_of[folded(question.text)].add(document)
            for row in question.candidates:
                text = row.candidate.text
                key = keys[text] if text in keys else keys.setdefault(text, folded(text))
                candidates.setdefault(key, row.candidate)
                self._documents[document].add(key)
        self._keys = list(candidates)
        self._candidates = list(candidates.values())

    def elsewhere(self, question: Question, seed: int) -> Iterator[Candidate]:
        """Candidates of other documents, in an order that depends on the seed and the question.

        Texts of all documents that belong to the same question are left out, and texts that contain its short answer.
        """
        own = {folded(row.candidate.text) for row in question.candidates}
        for document in {_document(question), *self._asked_of[folded(question.text)]}:
            own |= self._documents[document]
        drawn = random.Random(f"{seed}/elsewhere/{question.id}").getrandbits(64)
        for index in np.random.default_rng(drawn).permutation(len(self._keys)).tolist():
            if self._keys[index] not in own and not question.holds_answer(self._candidates[index].text):
                yield self._candidates[index]

    def deepen(self, question: Question, depths: Sequence[int], seed: int) -> DeepQuestion | None:
        """The question at the depths that are possible for it, or None if there are none.

        A depth has all positives and at least one negative. Negatives are drawn in a random order from the question's
        own, and then from other documents. Own candidates keep their order, and the others follow them.
        """
        rng = random.Random(f"{seed}/depth/{question.id}")
        positives = [index for index, row in enumerate(question.candidates) if row.relevant]
        negatives = [index for index, row in enumerate(question.candidates) if not row.relevant]
        rng.shuffle(negatives)
        wanted = [depth for depth in sorted(set(depths)) if depth > len(positives) > 0]
        if not wanted:
            return None
        own = {index: place for place, index in enumerate([*positives, *negatives][: wanted[-1]])}
        others = islice(self.elsewhere(question, seed), wanted[-1] - len(own))
        drawn = [(own[index], question.candidates[index]) for index in sorted(own)]
        drawn += [(place, LabelledCandidate(candidate, 0)) for place, candidate in enumerate(others, start=len(own))]
        reached = tuple(depth for depth in wanted if depth <= len(drawn))
        if not reached:
            return None
        drawn_rows = [(place, row) for place, row in drawn if place < reached[-1]]
        return DeepQuestion(
            question=replace(question, candidates=tuple(row for _, row in drawn_rows)),
            places=np.asarray([place for place, _ in drawn_rows], dtype=np.int64),
            depths=reached,
        )


def deep_questions(
    every: Sequence[Question], depths: Sequence[int], *, size: int | None, pairs: int, seed: int
) -> list[DeepQuestion]:
    """`size` random questions of a whole set, or all of them, at all depths that are possible.

    A depth has as many of the first questions as have together at most `pairs` pairs, which bounds its cost. Raises
    DataError when no depth is possible for any question.
    """
    documents, left, deep = Documents(every), dict.fromkeys(depths, pairs), []
    for question in sampled(every, size=len(every) if size is None else size, seed=seed, name="clean"):
        affordable = [depth for depth in depths if left[depth] >= depth]
        if drawn := documents.deepen(question, affordable, seed):
            deep.append(drawn)
            left.update((depth, left[depth] - depth) for depth in drawn.depths)
    if not deep:
        raise DataError(f"no question has {min(depths):,} candidates, with those of other documents")
    return deep


def _document(question: Question) -> str:
    return question.title or folded(question.text)
