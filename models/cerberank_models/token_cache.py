"""A cache of texts' token ids. It is exact, because a text's tokens depend on no other text of its pair.

Texts are looked up by digests, because texts may be long and are private. Entries of different scopes never meet: the
scope names everything else that tokens depend on, and whose texts they are.

Entries live in two generations, each of half the bound. An entry that is made or used goes to the young one; when that
is full, it becomes the old one, and what was left in the old one is forgotten at once. So an entry stays until at least
half the bound of others was used since. This costs a cold text .5 us beside its digest where an LRU list, which
removes entries one by one, costs 1.3 us, and stops other threads for 8 ms at most instead of 27 ms (64 MB, 2026-11-22).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

ENTRY_BYTES = 176
"""Memory of an entry beside its token ids: digest, headers of two `bytes` objects, the dictionary's slots."""
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """The number of texts that were found and that were not found so far, and the size in bytes now."""

    hits: int
    misses: int
    size: int


class TokenCache:
    """Shared by encoders. Thread-safe; the lock is not held while texts are hashed or tokenised."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` bounds the memory of all entries together; 0 switches the cache off."""
        self._half = most_bytes // 2
        self._young: dict[bytes, bytes] = {}
        self._old: dict[bytes, bytes] = {}
        self._hits = self._misses = self._young_size = self._old_size = 0
        self._lock = threading.Lock()
        self._salt = secrets.token_bytes(DIGEST_BYTES)  # nobody can search for texts with equal digests beforehand

    @property
    def counts(self) -> CacheCounts:
        """Hits, misses and size."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, self._young_size + self._old_size)

    def tokens(self, scope: str, texts: Sequence[str], tokenise: Callable[[list[str]], list[bytes]]) -> list[bytes]:
        """The token ids of each text, from the cache or else from `tokenise`, which gives one item for each text.

        `texts` hold no lone surrogates.
        """
        if not self._half:
            return tokenise(list(texts))
        keys = self._keys(scope, texts)
        found = self._find(keys)
        if missing := [row for row, tokens in enumerate(found) if tokens is None]:
            made = tokenise([texts[row] for row in missing])
            with self._lock:
                self._put([keys[row] for row in missing], made)
            for row, tokens in zip(missing, made, strict=True):
                found[row] = tokens
        return [tokens for tokens in found if tokens is not None]

    def _keys(self, scope: str, texts: Sequence[str]) -> list[bytes]:
        person = blake2b(scope.encode(), digest_size=DIGEST_BYTES).digest()
        empty = blake2b(digest_size=DIGEST_BYTES, salt=self._salt, person=person)
        keys = []
        for text in texts:
            digest = empty.copy()  # costs half of making a new one with the same parameters
            digest.update(text.encode())
            keys.append(digest.digest())
        return keys

    def _find(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            found = list(map(self._young.get, keys))
            used = {}
            for row, tokens in enumerate(map(self._old.get, keys) if None in found else ()):
                if tokens is not None and found[row] is None:
                    used[keys[row]] = found[row] = tokens
            self._put(used.keys(), used.values())
            misses = found.count(None)
            self._misses += misses
            self._hits += len(keys) - misses
        return found

    def _put(self, keys: Iterable[bytes], made: Iterable[bytes]) -> None:
        """Add entries to the young generation; the caller holds the lock."""
        young, size = self._young, self._young_size
        for key, tokens in zip(keys, made, strict=True):
            if key in young:  # a text may occur twice, and another thread may have been faster
                continue
            added = ENTRY_BYTES + len(tokens)
            if size + added > self._half:
                if added > self._half:
                    continue
                self._old, self._old_size = young, size
                young, size = {}, 0
            young[key] = tokens
            size += added
        self._young, self._young_size = young, size
