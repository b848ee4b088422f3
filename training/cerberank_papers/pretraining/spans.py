"""The spans b of a paragraph, and the paragraphs that can give a positive, by SSP's rules. Nothing is drawn here.

The context c is one of these:

- SDC (static document-level): the first paragraph of b's document; a and b come from later paragraphs.
- DPC (dynamic paragraph-level): b's paragraph without a and b, which must not be empty.
- DSLC (dynamic sentence-level local): the sentence before b and the one after b, of which at least one exists. b is
  chosen so that neither is a.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Literal

Context = Literal["sdc", "dpc", "dslc"]

CONTEXTS: tuple[Context, ...] = ("sdc", "dpc", "dslc")
MOST_SENTENCES = 3


def spans(paragraph: Sequence[str], context: Context, hidden: Set[str]) -> Iterator[tuple[int, int]]:
    """The start and the stop of every b in the paragraph that contains no hidden sentence."""
    for start in range(len(paragraph)):
        for stop in range(start + 1, min(start + MOST_SENTENCES, len(paragraph)) + 1):
            if not hidden.isdisjoint(paragraph[start:stop]):
                break
            around = [text for text in neighbours(paragraph, start, stop) if text]
            if (
                context == "sdc"
                or (context == "dpc" and without(hidden, [*paragraph[:start], *paragraph[stop:]]))
                or (context == "dslc" and around and hidden.isdisjoint(around))
            ):
                yield start, stop


def contexts_of(paragraphs: Sequence[Sequence[str]]) -> list[int]:
    """The contexts with which each paragraph can give a positive, as bits: bit i is for `CONTEXTS[i]`."""
    return [
        sum(
            1 << bit
            for bit, context in enumerate(CONTEXTS)
            if (place or context != "sdc") and any(next(spans(paragraph, context, {a}), None) for a in paragraph)
        )
        for place, paragraph in enumerate(paragraphs)
    ]


def without(hidden: Set[str], sentences: Sequence[str]) -> list[str]:
    """The sentences that are not hidden."""
    return [text for text in sentences if text not in hidden]


def neighbours(paragraph: Sequence[str], start: int, stop: int) -> tuple[str, str]:
    """The sentences before and after a span; an empty text if there is none."""
    return (paragraph[start - 1] if start else "", paragraph[stop] if stop < len(paragraph) else "")
