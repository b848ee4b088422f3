"""The protocols between a first stage and its callers, for vectors of texts that are computed, cached or stored.

The caller has missing vectors computed, scores all candidates of a question, drops some, and encodes the survivors as
pairs. The stages of pairs do not use vectors, and the engine does not know questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Vector
from cerberank_models.encoding import EncodedPairs
from cerberank_models.text_config import ColbertTokens, TextRankerConfig


class VectorBackend(Protocol):
    """Runs the encoder. Not thread-safe: only the thread that uses the backend of the stages of pairs may use it."""

    @property
    def config(self) -> TextRankerConfig:
        """The bi-encoder's shape."""

    @property
    def precision(self) -> str:
        """The precision in which the encoder computes."""

    def encode(self, texts: EncodedPairs) -> Sequence[Vector]:
        """The vector of each text, in order. The other texts affect a vector only by rounding."""


@dataclass(frozen=True, slots=True)
class TokenRoles:
    """The tokens that ColBERT treats differently, in arrays `[T]`; an array is None if all tokens are treated alike."""

    attended: NDArray[np.bool_] | None = None
    """True on tokens that other tokens attend to."""
    compared: NDArray[np.bool_] | None = None
    """True on tokens whose vectors take part in late interaction."""


def token_roles(texts: EncodedPairs, colbert: ColbertTokens | None) -> TokenRoles:
    """The roles of the texts' tokens. The mark after a text's first token distinguishes questions from documents."""
    if colbert is None or not len(texts):
        return TokenRoles()
    marks = texts.token_ids[texts.offsets[:-1] + 1]
    questions = np.repeat(marks == colbert.question_mark, texts.lengths)
    fills = np.zeros_like(questions)
    for start, stop in zip(texts.offsets[:-1], texts.offsets[1:], strict=True):
        if questions[start] and colbert.unattended is not None:  # after the last token of another kind
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
    """The vectors of n texts from their fixed-width parts `[n, W]` and their packed token vectors `[T, P]`, if any.

    The token vectors of text i are `offsets[i]:offsets[i + 1]`, without those for which `compared[T]` is False. A
    vector may share memory with `fixed`.
    """
    if tokens is None:
        return list(fixed)
    if compared is not None:
        tokens, offsets = tokens[compared], np.concatenate([[0], np.cumsum(compared)])[offsets]
    places = zip(fixed, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return [np.concatenate([first, tokens[start:stop].ravel()]) for first, start, stop in places]
