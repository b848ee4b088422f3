"""A cache of texts' vectors, bounded in bytes. Entries of different scopes never meet."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from cerberank_models.backends.contract import Vector
from cerberank_models.token_cache import CacheCounts

ENTRY_BYTES = 250


class VectorCache:
    """Shared by versions. Thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` bounds the memory of all entries together; 0 switches the cache off."""
        self._most, self._size, self._hits, self._misses = most_bytes, 0, 0, 0
        self._found: OrderedDict[bytes, Vector] = OrderedDict()
        self._lock = threading.Lock()
        self._salt = secrets.token_bytes(16)

    @property
    def counts(self) -> CacheCounts:
        """Hits, misses and size."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, self._size)

    def find(self, scope: str, texts: Sequence[str]) -> list[Vector | None]:
        """The vector of each text, None where it is not known."""
        if not self._most:
            return [None] * len(texts)
        keys = self._keys(scope, texts)
        with self._lock:
            found = [self._found.get(key) for key in keys]
            for key, vector in zip(keys, found, strict=True):
                if vector is not None:
                    self._found.move_to_end(key)
            misses = sum(vector is None for vector in found)
            self._misses += misses
            self._hits += len(keys) - misses
        return found

    def keep(self, scope: str, texts: Sequence[str], vectors: Sequence[Vector]) -> None:
        """Remember the vector of each text."""
        if not self._most:
            return
        keys = self._keys(scope, texts)
        with self._lock:
            for key, vector in zip(keys, vectors, strict=True):
                if key not in self._found:
                    self._found[key] = vector.copy()
                    self._size += ENTRY_BYTES + vector.nbytes
            while self._size > self._most:
                self._size -= ENTRY_BYTES + self._found.popitem(last=False)[1].nbytes

    def _keys(self, scope: str, texts: Sequence[str]) -> list[bytes]:
        person = blake2b(scope.encode(), digest_size=16).digest()
        return [blake2b(text.encode(), digest_size=16, salt=self._salt, person=person).digest() for text in texts]
