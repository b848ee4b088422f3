"""A cache of texts' token ids. The tokens of a text do not depend on the other texts of its pair.

The keys are digests, because texts may be long and are private. A scope names everything besides the text that its
tokens depend on, and the owner of the texts. A lookup in one scope never finds an entry of another scope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cerberank_models.generations import CacheCounts, Generations

__all__ = ["ENTRY_BYTES", "CacheCounts", "TokenCache"]

ENTRY_BYTES = 176
"""Bytes of memory of an entry beside its token ids: the digest, headers of two `bytes` objects, slots of the dict."""


class TokenCache:
    """A cache that encoders share. Thread-safe; the lock is not held while texts are hashed or tokenised."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` bounds the memory of all entries together; 0 switches the cache off."""
        self.entries: Generations[bytes] = Generations(most_bytes, entry_bytes=ENTRY_BYTES, item_bytes=1)

    @property
    def counts(self) -> CacheCounts:
        """Hits, misses and size."""
        return self.entries.counts

    def tokens(self, scope: str, texts: Sequence[str], tokenise: Callable[[list[str]], list[bytes]]) -> list[bytes]:
        """The token ids of each text, from the cache or from `tokenise`, which returns one item for each text.

        The `texts` must not contain lone surrogates.
        """
        if not self.entries.half:
            return tokenise(list(texts))
        keys = self.entries.keys(scope, texts)
        ids = self.entries.find(keys)
        missing = [row for row, tokens in enumerate(ids) if tokens is None]
        if missing:
            added = tokenise([texts[row] for row in missing])
            self.entries.put([keys[row] for row in missing], added)
            for row, tokens in zip(missing, added, strict=True):
                ids[row] = tokens
        return [tokens for tokens in ids if tokens is not None]
