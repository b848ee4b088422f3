"""Examples of "sentences in the same paragraph": given a, b and a context c, are a and b of one paragraph?

A group of examples depends only on the documents, the objective, the seed and the group's number i. Therefore a resumed
run continues with the same groups, and processes need not communicate. The five examples of a group have the same a:
one positive, at most two hard negatives, and easy negatives, four negatives in all (SSP appendix A.1).

a is a sentence. b is one to three contiguous sentences of a paragraph, and does not contain a. `spans.py` defines the
context c. Every sentence with the same words as a is treated as a, except in SDC's context. The b of a hard negative is
from another paragraph of the same document; two hard negatives have different paragraphs. The b of an easy negative is
from another document and has that document's context (SSP section 4).

In a positive, b and c lack the sentence a, and are therefore shorter than in a negative, so that lengths would reveal
much of the answer. For this reason b and c of a negative also lack a drawn sentence of their paragraph, which is chosen
so that a b remains. The paper does not do this: in DPC its c is everything in b's paragraph besides b.
`whole_negatives` restores the paper's negatives.
"""

from __future__ import annotations

import random
from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cerberank_models.encoding import Candidate
from cerberank_papers.pretraining.document_table import DocumentTable
from cerberank_papers.pretraining.documents import Paragraph
from cerberank_papers.pretraining.spans import CONTEXTS, Context, neighbours, spans, without
from cerberank_training.data.epochs import EpochOrder

Objective = Literal["sdc", "dpc", "dslc", "all"]
Kind = Literal["positive", "hard", "easy"]

GROUP, MOST_HARD = 5, 2
MOST_DRAWS = 1000
"""The number of draws of other documents' paragraphs before an error says that these contain nothing but a."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """The texts a, and b with its context. The label says if both are of one paragraph."""

    a: str
    b: Candidate
    kind: Kind

    @property
    def label(self) -> int:
        """1 for a positive, 0 for a negative."""
        return int(self.kind == "positive")


Item = tuple[int, list[Example]]
"""The number of an item, which determines its masks, and examples with the same a."""


class ExampleGroups:
    """The groups of one objective, or of all three objectives in turn."""

    def __init__(
        self, documents: DocumentTable, objective: Objective, *, seed: int, whole_negatives: bool = False
    ) -> None:
        """With `whole_negatives`, b and c of a negative may contain every sentence of their paragraph, as in the paper.

        Memory holds 12 bytes for each context and paragraph that can give a positive, 16 from the second epoch on.
        Raises ValueError when the documents give no positive, or only one document can give negatives.
        """
        self._contexts = CONTEXTS if objective == "all" else (objective,)
        self._sources = [
            _Source(documents, context, seed=seed, whole_negatives=whole_negatives) for context in self._contexts
        ]
        self._seed = seed

    def __len__(self) -> int:
        """The number of examples of one epoch, in which every paragraph gives a positive once for each context."""
        return GROUP * sum(map(len, self._sources))

    def step(self, step: int, size: int) -> list[Item]:
        """The `size` groups of step `step`, with their numbers."""
        return [(index, self.group(index)) for index in range(step * size, (step + 1) * size)]

    def group(self, index: int) -> list[Example]:
        """Group `index`, counted from 0: five examples, the positive, then hard negatives, then easy ones."""
        visit, turn = divmod(index, len(self._sources))
        return self._sources[turn].group(visit, random.Random(f"{self._seed}/{index}"))


class _Source:
    """The paragraphs that give examples with one kind of context."""

    def __init__(self, documents: DocumentTable, context: Context, *, seed: int, whole_negatives: bool) -> None:
        self._documents = documents
        self._context = context
        self._whole = whole_negatives
        # All paragraphs that can give a positive, also for negatives; those of a document are next to each other.
        numbers, places = documents.places(context)
        self._numbers = numbers
        self._places = places
        usable = int(np.count_nonzero(np.diff(self._numbers))) + bool(len(self._numbers))
        if usable < 2:
            raise ValueError(
                f"{context} needs paragraphs of several sentences in two documents or more: {len(self._places)} such "
                f"paragraphs are in {usable} of {len(documents)} long enough"
            )
        self._order = EpochOrder(len(self._places), seed=seed, compact=True)

    def __len__(self) -> int:
        return len(self._places)

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
        raise ValueError(f"other documents contain nothing but {a!r}")

    def _block(self, number: int) -> tuple[int, int]:
        """The first index of a document's paragraphs in the list, and the index after the last."""
        key = np.int32(number)  # the array's type, because otherwise the whole array would be converted
        return int(np.searchsorted(self._numbers, key)), int(np.searchsorted(self._numbers, key, side="right"))

    def _elsewhere(self, number: int, draw: random.Random) -> tuple[int, int]:
        """A paragraph of another document; all have the same probability."""
        first, stop = self._block(number)
        index = draw.randrange(len(self._places) - (stop - first))
        index = index if index < first else index + stop - first
        return int(self._numbers[index]), int(self._places[index])

    def _drawn(self, number: int, place: int, draw: random.Random, a: str = "") -> tuple[str, Candidate] | None:
        """A sentence of the paragraph, and a b with its context that contain neither this sentence nor `a`.

        None if there is no such b. In a positive the sentence is its a. In a negative it is the drawn sentence that is
        left out; with whole negatives no sentence is drawn, and the result has `a`.
        """
        paragraph = self._documents.paragraph(number, place)
        if a and self._whole:
            choices = list(spans(paragraph, self._context, {a}))
            return (a, self._candidate(number, paragraph, draw.choice(choices), {a})) if choices else None
        for hidden in draw.sample(paragraph, len(paragraph)):
            if choices := list(spans(paragraph, self._context, {hidden, a})):
                return hidden, self._candidate(number, paragraph, draw.choice(choices), {hidden, a})
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
