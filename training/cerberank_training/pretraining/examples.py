"""Examples of "sentences in the same paragraph": given a, b and a context c, are a and b of one paragraph?

In: documents, an objective and a seed. Out: group i, four examples with the same a: a positive, at most two hard
negatives and easy ones. A group follows from documents, objective, seed and i alone, so that a resumed run goes on with
the same ones and several processes need not talk to each other.

a is a sentence; b is one to three contiguous sentences of a paragraph and does not contain a. The context c is:

- SDC (static document-level): the first paragraph of b's document; a and b come from later paragraphs.
- DPC (dynamic paragraph-level): b's paragraph without a and b; something must remain.
- DSLC (dynamic sentence-level local): the sentence before b and the one after b, of which at least one exists. b is
  chosen so that neither is a.

A sentence with a's words counts as a. A hard negative's b is of another paragraph of the same document, two of two
different paragraphs; an easy one's is of another document and has that document's context (SSP section 4).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cerberank_models.encoding import Candidate
from cerberank_training.data.epochs import EpochOrder
from cerberank_training.pretraining.documents import Document

Objective = Literal["sdc", "dpc", "dslc", "all"]
Context = Literal["sdc", "dpc", "dslc"]
Kind = Literal["positive", "hard", "easy"]

CONTEXTS: tuple[Context, ...] = ("sdc", "dpc", "dslc")
GROUP, MOST_HARD, MOST_SENTENCES = 4, 2, 3
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

    def __init__(self, documents: Sequence[Document], objective: Objective, *, seed: int) -> None:
        """Raises ValueError when the documents hold no positive, or only one of them can give a negative."""
        self._contexts = CONTEXTS if objective == "all" else (objective,)
        self._sources = [_Source(documents, context, seed=seed) for context in self._contexts]
        self._seed = seed

    def group(self, index: int) -> list[Example]:
        """Group `index`, counted from 0: the positive, then hard negatives, then easy ones; four in all."""
        visit, turn = divmod(index, len(self._sources))
        return self._sources[turn].group(visit, random.Random(f"{self._seed}/{index}"))


class _Source:
    """The paragraphs that give examples with one kind of context."""

    def __init__(self, documents: Sequence[Document], context: Context, *, seed: int) -> None:
        self._documents, self._context = documents, context
        first = int(context == "sdc")
        self._usable: dict[int, list[int]] = {}
        """By document, the paragraphs that can give a b."""
        self._anchors: list[tuple[int, int]] = []
        """Document and paragraph of every possible positive."""
        for number, document in enumerate(documents):
            for place in range(first, len(document.paragraphs)):
                if next(self._spans(number, place, ""), None) is None:
                    continue
                self._usable.setdefault(number, []).append(place)
                if any(next(self._spans(number, place, a), None) for a in document.paragraphs[place]):
                    self._anchors.append((number, place))
        if not self._anchors or len(self._usable) < 2:
            raise ValueError(
                f"{context} needs paragraphs of several sentences in two documents or more: of {len(documents)} long "
                f"enough, {len(self._usable)} can be used, with {len(self._anchors)} such paragraphs"
            )
        self._others = list(self._usable)
        self._order = EpochOrder(len(self._anchors), seed=seed)

    def group(self, visit: int, draw: random.Random) -> list[Example]:
        number, place = self._anchors[self._order.step(visit, 1)[0]]
        paragraph = self._documents[number].paragraphs[place]
        for a in draw.sample(paragraph, len(paragraph)):
            if own := self._candidate(number, place, a, draw):
                break
        else:
            raise AssertionError("an anchor has a positive")
        examples = [Example(a=a, b=own, kind="positive")]
        hard = [other for other in self._usable[number] if other != place]
        for other in draw.sample(hard, len(hard)):
            if len(examples) <= MOST_HARD and (b := self._candidate(number, other, a, draw)):
                examples.append(Example(a=a, b=b, kind="hard"))
        for _ in range(MOST_DRAWS):
            if len(examples) == GROUP:
                return examples
            away = draw.choice(self._others)
            if away != number and (b := self._candidate(away, draw.choice(self._usable[away]), a, draw)):
                examples.append(Example(a=a, b=b, kind="easy"))
        raise ValueError(f"other documents hold nothing but {a!r}")

    def _candidate(self, number: int, place: int, a: str, draw: random.Random) -> Candidate | None:
        """A drawn b of the paragraph with its context, or None where a leaves no room for one."""
        spans = list(self._spans(number, place, a))
        if not spans:
            return None
        start, stop = draw.choice(spans)
        document = self._documents[number]
        paragraph = document.paragraphs[place]
        text = " ".join(paragraph[start:stop])
        if self._context == "sdc":
            return Candidate(text=text, previous=" ".join(document.paragraphs[0]))
        if self._context == "dpc":
            return Candidate(text=text, previous=" ".join(_without(a, paragraph[:start] + paragraph[stop:])))
        before, after = _neighbours(paragraph, start, stop)
        return Candidate(text=text, previous=before, next=after)

    def _spans(self, number: int, place: int, a: str) -> Iterator[tuple[int, int]]:
        """First sentence, and the one after the last, of every b that the paragraph can give beside a."""
        paragraph = self._documents[number].paragraphs[place]
        for start in range(len(paragraph)):
            for stop in range(start + 1, min(start + MOST_SENTENCES, len(paragraph)) + 1):
                if a in paragraph[start:stop]:
                    break
                around = _neighbours(paragraph, start, stop)
                if (
                    self._context == "sdc"
                    or (self._context == "dpc" and _without(a, paragraph[:start] + paragraph[stop:]))
                    or (self._context == "dslc" and any(around) and a not in filter(None, around))
                ):
                    yield start, stop


def _without(a: str, sentences: Sequence[str]) -> list[str]:
    return [text for text in sentences if text != a]


def _neighbours(paragraph: Sequence[str], start: int, stop: int) -> tuple[str, str]:
    """The sentences before and after a span; empty where there is none."""
    return (paragraph[start - 1] if start else "", paragraph[stop] if stop < len(paragraph) else "")
