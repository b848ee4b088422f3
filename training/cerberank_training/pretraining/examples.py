"""Examples of "sentences in the same paragraph": given a, b and a context c, are a and b of one paragraph?

In: documents, an objective and a seed. Out: group i, five examples with the same a: a positive, at most two hard
negatives and easy ones, four negatives in all (SSP appendix A.1). A group follows from documents, objective, seed and i
alone, so that a resumed run goes on with the same ones and several processes need not talk to each other.

a is a sentence; b is one to three contiguous sentences of a paragraph and does not contain a. The context c is:

- SDC (static document-level): the first paragraph of b's document; a and b come from later paragraphs.
- DPC (dynamic paragraph-level): b's paragraph without a and b; something must remain.
- DSLC (dynamic sentence-level local): the sentence before b and the one after b, of which at least one exists. b is
  chosen so that neither is a.

A sentence with a's words counts as a, but in SDC's context. A hard negative's b is of another paragraph of the same
document, two of two different paragraphs; an easy one's is of another document and has that document's context (SSP
section 4).

A positive's b and c lack a, which would make them shorter than a negative's, so that lengths alone told much of the
answer. So a negative's b and c lack a drawn sentence of their paragraph as well, which must leave room for them, as a
must in a positive's. The paper does not do this; in DPC its c is all that is left of b's paragraph. `whole_negatives`
restores it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from cerberank_models.encoding import Candidate
from cerberank_training.data.epochs import EpochOrder
from cerberank_training.pretraining.documents import Document

Objective = Literal["sdc", "dpc", "dslc", "all"]
Context = Literal["sdc", "dpc", "dslc"]
Kind = Literal["positive", "hard", "easy"]

CONTEXTS: tuple[Context, ...] = ("sdc", "dpc", "dslc")
GROUP, MOST_HARD, MOST_SENTENCES = 5, 2, 3
MOST_DRAWS = 1000
"""Draws of another document's paragraph before giving up, because all of them hold nothing but a."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """Text a, and b with its context; the label is whether they are of one paragraph."""

    a: str
    b: Candidate
    kind: Kind

    @property
    def label(self) -> int:
        """1 for a positive, 0 for a negative."""
        return int(self.kind == "positive")


class ExampleGroups:
    """The groups of one objective, or of all three in turn, on given documents."""

    def __init__(
        self, documents: Sequence[Document], objective: Objective, *, seed: int, whole_negatives: bool = False
    ) -> None:
        """With `whole_negatives`, b and c of a negative may hold every sentence of their paragraph, as in the paper.

        Raises ValueError when the documents hold no positive, or only one of them can give a negative.
        """
        self._contexts = CONTEXTS if objective == "all" else (objective,)
        self._sources = [
            _Source(documents, context, seed=seed, whole_negatives=whole_negatives) for context in self._contexts
        ]
        self._seed = seed

    def group(self, index: int) -> list[Example]:
        """Group `index`, counted from 0: the positive, then hard negatives, then easy ones; five in all."""
        visit, turn = divmod(index, len(self._sources))
        return self._sources[turn].group(visit, random.Random(f"{self._seed}/{index}"))


class _Source:
    """The paragraphs that give examples with one kind of context."""

    def __init__(self, documents: Sequence[Document], context: Context, *, seed: int, whole_negatives: bool) -> None:
        self._documents, self._context, self._whole = documents, context, whole_negatives
        self._places = [
            (number, place)
            for number, document in enumerate(documents)
            for place in range(int(context == "sdc"), len(document.paragraphs))
            if any(next(self._spans(number, place, {a}), None) for a in document.paragraphs[place])
        ]
        """Document and paragraph of every possible positive; negatives are of these too."""
        self._usable: dict[int, list[int]] = {}
        """The same by document."""
        self._first: dict[int, int] = {}
        """Where a document's stand in the list; they are next to each other."""
        for index, (number, place) in enumerate(self._places):
            self._usable.setdefault(number, []).append(place)
            self._first.setdefault(number, index)
        if len(self._usable) < 2:
            raise ValueError(
                f"{context} needs paragraphs of several sentences in two documents or more: {len(self._places)} such "
                f"paragraphs are in {len(self._usable)} of {len(documents)} long enough"
            )
        self._order = EpochOrder(len(self._places), seed=seed)

    def group(self, visit: int, draw: random.Random) -> list[Example]:
        number, place = self._places[self._order.step(visit, 1)[0]]
        drawn = self._drawn(number, place, draw)
        assert drawn is not None, "a listed paragraph has a positive"
        a, own = drawn
        examples = [Example(a=a, b=own, kind="positive")]
        hard = [other for other in self._usable[number] if other != place]
        for other in draw.sample(hard, len(hard)):
            if len(examples) <= MOST_HARD and (negative := self._drawn(number, other, draw, a)):
                examples.append(Example(a=a, b=negative[1], kind="hard"))
        for _ in range(MOST_DRAWS):
            if len(examples) == GROUP:
                return examples
            if negative := self._drawn(*self._elsewhere(number, draw), draw, a):
                examples.append(Example(a=a, b=negative[1], kind="easy"))
        raise ValueError(f"other documents hold nothing but {a!r}")

    def _elsewhere(self, number: int, draw: random.Random) -> tuple[int, int]:
        """A place of another document, each as likely as the others."""
        own = len(self._usable[number])
        index = draw.randrange(len(self._places) - own)
        return self._places[index if index < self._first[number] else index + own]

    def _drawn(self, number: int, place: int, draw: random.Random, a: str = "") -> tuple[str, Candidate] | None:
        """A sentence of the paragraph, and a b with its context that hold neither this sentence nor `a`.

        None if no b fits. The sentence is the a of a positive, and what a negative leaves out in its place,
        unless negatives are whole.
        """
        paragraph = self._documents[number].paragraphs[place]
        if a and self._whole:
            spans = list(self._spans(number, place, {a}))
            return (a, self._candidate(number, place, draw.choice(spans), {a})) if spans else None
        for hidden in draw.sample(paragraph, len(paragraph)):
            if spans := list(self._spans(number, place, {hidden, a})):
                return hidden, self._candidate(number, place, draw.choice(spans), {hidden, a})
        return None

    def _candidate(self, number: int, place: int, span: tuple[int, int], hidden: Set[str]) -> Candidate:
        start, stop = span
        document = self._documents[number]
        paragraph = document.paragraphs[place]
        text = " ".join(paragraph[start:stop])
        if self._context == "sdc":
            return Candidate(text=text, previous=" ".join(document.paragraphs[0]))
        if self._context == "dpc":
            return Candidate(text=text, previous=" ".join(_without(hidden, paragraph[:start] + paragraph[stop:])))
        before, after = _neighbours(paragraph, start, stop)
        return Candidate(text=text, previous=before, next=after)

    def _spans(self, number: int, place: int, hidden: Set[str]) -> Iterator[tuple[int, int]]:
        """First sentence, and the one after the last, of every b of the paragraph without the hidden sentences."""
        paragraph = self._documents[number].paragraphs[place]
        for start in range(len(paragraph)):
            for stop in range(start + 1, min(start + MOST_SENTENCES, len(paragraph)) + 1):
                if not hidden.isdisjoint(paragraph[start:stop]):
                    break
                around = [text for text in _neighbours(paragraph, start, stop) if text]
                if (
                    self._context == "sdc"
                    or (self._context == "dpc" and _without(hidden, paragraph[:start] + paragraph[stop:]))
                    or (self._context == "dslc" and around and hidden.isdisjoint(around))
                ):
                    yield start, stop


def _without(hidden: Set[str], sentences: Sequence[str]) -> list[str]:
    return [text for text in sentences if text not in hidden]


def _neighbours(paragraph: Sequence[str], start: int, stop: int) -> tuple[str, str]:
    """The sentences before and after a span; empty where there is none."""
    return (paragraph[start - 1] if start else "", paragraph[stop] if stop < len(paragraph) else "")
