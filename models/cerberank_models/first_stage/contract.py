"""The contract between a first stage and its callers: vectors of texts, computed on a device or known before.

The stages of pairs know nothing of vectors, and the engine nothing of questions: a caller asks for the vectors that it
does not have, scores all of a question's candidates, drops, and encodes the survivors as pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Vector
from cerberank_models.encoding import EncodedPairs
from cerberank_models.text_config import ColbertTokens, TextRankerConfig


class VectorBackend(Protocol):
    """Runs the encoder. Not thread-safe: the thread that owns the pair stages' backend owns it too."""

    @property
    def config(self) -> TextRankerConfig:
        """The bi-encoder's shape."""

    @property
    def precision(self) -> str:
        """The number format that it computes in."""

    def encode(self, texts: EncodedPairs) -> Sequence[Vector]:
        """The vector of each of the n texts, in order; empty for none. What it computes is independent of the others,
        beyond the order in which numbers are added.
        """


class KnownVectors(Protocol):
    """Vectors that need not be computed. Threads may share one."""

    def find(self, texts: Sequence[str]) -> list[Vector | None]:
        """The vector of each candidate text, None where it is not known."""


@dataclass(frozen=True, slots=True)
class TokenRoles:
    """The tokens of n texts that ColBERT treats in a way of their own, each array `[T]`; None where all are alike."""

    attended: NDArray[np.bool_] | None = None
    """True on tokens that others attend to."""
    compared: NDArray[np.bool_] | None = None
    """True on tokens whose vectors take part in late interaction."""


def token_roles(texts: EncodedPairs, colbert: ColbertTokens | None) -> TokenRoles:
    """The roles of the texts' tokens. The mark behind a text's first token tells questions from documents."""
    if colbert is None or not len(texts):
        return TokenRoles()
    marks = texts.token_ids[texts.offsets[:-1] + 1]
    questions = np.repeat(marks == colbert.question_mark, texts.lengths)
    fills = np.zeros_like(questions)
    for start, stop in zip(texts.offsets[:-1], texts.offsets[1:], strict=True):
        if questions[start] and colbert.unattended is not None:  # behind the last token that is another one
            own = np.flatnonzero(texts.token_ids[start:stop] != colbert.unattended)
            fills[start + own[-1] + 1 : stop] = True
    skipped = np.isin(texts.token_ids, colbert.skipped) & ~questions
    return TokenRoles(~fills if fills.any() else None, ~skipped if skipped.any() else None)


def split_vectors(
    fixed: NDArray[np.float16],
    tokens: NDArray[np.float16] | None,
    offsets: NDArray[np.int64],
    compared: NDArray[np.bool_] | None = None,
) -> list[Vector]:
    """Vectors of n texts from their parts of a fixed width `[n, W]` and their packed token vectors `[T, P]`, if any.

    Text i owns the token vectors `offsets[i]:offsets[i + 1]`, or those of them that are `compared[T]`. A vector may
    share memory with `fixed`.
    """
    if tokens is None:
        return list(fixed)
    if compared is not None:
        tokens, offsets = tokens[compared], np.concatenate([[0], np.cumsum(compared)])[offsets]
    places = zip(fixed, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return [np.concatenate([first, tokens[start:stop].ravel()]) for first, start, stop in places]
