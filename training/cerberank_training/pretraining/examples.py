"""Examples of "sentences in the same paragraph": given a, b and a context c, are a and b of one paragraph?

In: documents, an objective and a seed. Out: group i, five examples with the same a: a positive, at most two hard
negatives and easy ones, four negatives in all (SSP appendix A.1). A group follows from documents, objective, seed and i
alone, so that a resumed run goes on with the same ones and several processes need not talk to each other.

a is a sentence; b is one to three contiguous sentences of a paragraph and does not contain a; `spans.py` says what the
context c is.

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
from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cerberank_models.encoding import Candidate
from cerberank_training.data.epochs import EpochOrder
from cerberank_training.pretraining.document_table import DocumentTable
from cerberank_training.pretraining.documents import Paragraph
from cerberank_training.pretraining.spans import CONTEXTS, Context, neighbours, spans, without

Objective = Literal["sdc", "dpc", "dslc", "all"]
Kind = Literal["positive", "hard", "easy"]

GROUP, MOST_HARD = 5, 2
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
        self, documents: DocumentTable, objective: Objective, *, seed: int, whole_negatives: bool = False
    ) -> None:
        """With `whole_negatives`, b and c of a negative may hold every sentence of their paragraph, as in the paper.

        In memory are 12 bytes for each paragraph and context, 16 while a step spans two epochs. Raises ValueError when
        the documents hold no positive, or only one of them can give a negative.
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

    def __init__(self, documents: DocumentTable, context: Context, *, seed: int, whole_negatives: bool) -> None:
        self._documents, self._context, self._whole = documents, context, whole_negatives
        # Every possible positive; negatives are of these too. Those of a document are next to each other.
        self._numbers, self._places = documents.places(context)
        found = int(np.count_nonzero(np.diff(self._numbers))) + bool(len(self._numbers))
        if found < 2:
            raise ValueError(
                f"{context} needs paragraphs of several sentences in two documents or more: {len(self._places)} such "
                f"paragraphs are in {found} of {len(documents)} long enough"
            )
        self._order = EpochOrder(len(self._places), seed=seed, compact=True)

    def group(self, visit: int, draw: random.Random) -> list[Example]:
        index = self._order.step(visit, 1)[0]
        number, place = int(self._numbers[index]), int(self._places[index])
        drawn = self._drawn(number, place, draw)
        assert drawn is not None, "a listed paragraph has a positive"
        a, own = drawn
        examples = [Example(a=a, b=own, kind="positive")]
        first, stop = self._block(number)
        hard = [other for other in self._places[first:stop].tolist() if other != place]
        for other in draw.sample(hard, len(hard)):
            if len(examples) > MOST_HARD:
                break
            if negative := self._drawn(number, other, draw, a):
                examples.append(Example(a=a, b=negative[1], kind="hard"))
        for _ in range(MOST_DRAWS):
            if len(examples) == GROUP:
                return examples
            if negative := self._drawn(*self._elsewhere(number, draw), draw, a):
                examples.append(Example(a=a, b=negative[1], kind="easy"))
        raise ValueError(f"other documents hold nothing but {a!r}")

    def _block(self, number: int) -> tuple[int, int]:
        """The places of a document's paragraphs in the list."""
        key = np.int32(number)  # of the array's type, or all of it would be converted
        return int(np.searchsorted(self._numbers, key)), int(np.searchsorted(self._numbers, key, side="right"))

    def _elsewhere(self, number: int, draw: random.Random) -> tuple[int, int]:
        """A place of another document, each as likely as the others."""
        first, stop = self._block(number)
        index = draw.randrange(len(self._places) - (stop - first))
        index = index if index < first else index + stop - first
        return int(self._numbers[index]), int(self._places[index])

    def _drawn(self, number: int, place: int, draw: random.Random, a: str = "") -> tuple[str, Candidate] | None:
        """A sentence of the paragraph, and a b with its context that hold neither this sentence nor `a`.

        None if no b fits. The sentence is the a of a positive, and what a negative leaves out in its place,
        unless negatives are whole.
        """
        paragraph = self._documents.paragraph(number, place)
        if a and self._whole:
            found = list(spans(paragraph, self._context, {a}))
            return (a, self._candidate(number, paragraph, draw.choice(found), {a})) if found else None
        for hidden in draw.sample(paragraph, len(paragraph)):
            if found := list(spans(paragraph, self._context, {hidden, a})):
                return hidden, self._candidate(number, paragraph, draw.choice(found), {hidden, a})
        return None

    def _candidate(self, number: int, paragraph: Paragraph, span: tuple[int, int], hidden: Set[str]) -> Candidate:
        start, stop = span
        text = " ".join(paragraph[start:stop])
        if self._context == "sdc":
            return Candidate(text=text, previous=" ".join(self._documents.paragraph(number, 0)))
        if self._context == "dpc":
            return Candidate(text=text, previous=" ".join(without(hidden, paragraph[:start] + paragraph[stop:])))
        before, after = neighbours(paragraph, start, stop)
        return Candidate(text=text, previous=before, next=after)
