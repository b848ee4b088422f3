"""The contract between a first stage and its callers: vectors of texts, computed on a device or known before.

The stages of pairs know nothing of vectors, and the engine nothing of questions: a caller asks for the vectors that it
does not have, scores all of a question's candidates, drops, and encodes the survivors as pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Vector
from cerberank_models.config import TextRankerConfig
from cerberank_models.encoding import EncodedPairs


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


def split_vectors(
    fixed: NDArray[np.float16], tokens: NDArray[np.float16] | None, offsets: NDArray[np.int64]
) -> list[Vector]:
    """Vectors of n texts from their parts of a fixed width `[n, W]` and their packed token vectors `[T, P]`, if any.

    Text i owns the token vectors `offsets[i]:offsets[i + 1]`. A vector may share memory with `fixed`.
    """
    if tokens is None:
        return list(fixed)
    places = zip(fixed, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return [np.concatenate([first, tokens[start:stop].ravel()]) for first, start, stop in places]
