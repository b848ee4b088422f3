"""A cache of candidates' vectors. A cached vector is always valid, because it does not depend on other texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cerberank_models.backends.stage_contract import Vector
from cerberank_models.generations import CacheCounts, Generations

ENTRY_BYTES = 320
"""The bytes of memory of an entry beside its numbers: the digest, the array object, and slots of the dictionary."""
NUMBER_BYTES = 2


class VectorCache:
    """A thread-safe cache. The lock is not held while texts are hashed or vectors are copied."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` bounds the memory of all entries together; 0 switches the cache off."""
        self._entries: Generations[Vector] = Generations(most_bytes, entry_bytes=ENTRY_BYTES, item_bytes=NUMBER_BYTES)

    @property
    def counts(self) -> CacheCounts:
        """Hits, misses and size."""
        return self._entries.counts

    def find(self, scope: str, texts: Sequence[str]) -> list[Vector | None]:
        """The vector of each candidate text, or None if it is not cached. Returned vectors must not be changed.

        A scope names the encoder, the precision, and the owner of the texts. A lookup in one scope never finds an entry
        of another scope.
        """
        if not self._entries.half:
            return [None] * len(texts)
        return self._entries.find(self._entries.keys(scope, texts))

    def put(self, scope: str, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
        """Keep a copy of each text's vector, because a vector may be a part of a larger array."""
        if self._entries.half:
            self._entries.put(self._entries.keys(scope, texts), [np.array(vector) for vector in vectors])
