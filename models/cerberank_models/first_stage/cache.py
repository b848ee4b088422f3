"""A cache of candidates' vectors. It is exact, because a text's vector depends on no other text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cerberank_models.backends.contract import Vector
from cerberank_models.generations import CacheCounts, Generations

ENTRY_BYTES = 320
"""Memory of an entry beside its numbers: digest, an array with its own memory, the dictionary's slots."""
NUMBER_BYTES = 2


class VectorCache:
    """Shared by threads. The lock is not held while texts are hashed or vectors copied."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` bounds the memory of all entries together; 0 switches the cache off."""
        self._entries: Generations[Vector] = Generations(most_bytes, entry_bytes=ENTRY_BYTES, item_bytes=NUMBER_BYTES)

    @property
    def counts(self) -> CacheCounts:
        """Hits, misses and size."""
        return self._entries.counts

    def find(self, scope: str, texts: Sequence[str]) -> list[Vector | None]:
        """The vector of each candidate text, None where it is not known; a found one must not be changed.

        Entries of different scopes never meet: a scope names the encoder, the precision, and whose texts they are.
        """
        if not self._entries.half:
            return [None] * len(texts)
        return self._entries.find(self._entries.keys(scope, texts))

    def put(self, scope: str, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
        """Keep a copy of each text's vector, because a vector may be a part of a larger array."""
        if self._entries.half:
            self._entries.put(self._entries.keys(scope, texts), [np.array(vector) for vector in vectors])
