"""A cache of texts' token ids. It is exact, because a text's tokens depend on no other text of its pair.

Texts are looked up by digests, because texts may be long and are private. Entries of different scopes never meet: the
scope names everything else that tokens depend on, and whose texts they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cerberank_models.generations import CacheCounts, Generations

__all__ = ["ENTRY_BYTES", "CacheCounts", "TokenCache"]

ENTRY_BYTES = 176
"""Memory of an entry beside its token ids: digest, headers of two `bytes` objects, the dictionary's slots."""


class TokenCache:
    """Shared by encoders. Thread-safe; the lock is not held while texts are hashed or tokenised."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` bounds the memory of all entries together; 0 switches the cache off."""
        self.entries: Generations[bytes] = Generations(most_bytes, entry_bytes=ENTRY_BYTES, item_bytes=1)

    @property
    def counts(self) -> CacheCounts:
        """Hits, misses and size."""
        return self.entries.counts

    def tokens(self, scope: str, texts: Sequence[str], tokenise: Callable[[list[str]], list[bytes]]) -> list[bytes]:
        """The token ids of each text, from the cache or else from `tokenise`, which gives one item for each text.

        `texts` hold no lone surrogates.
        """
        if not self.entries.half:
            return tokenise(list(texts))
        keys = self.entries.keys(scope, texts)
        found = self.entries.find(keys)
        if missing := [row for row, tokens in enumerate(found) if tokens is None]:
            made = tokenise([texts[row] for row in missing])
            self.entries.put([keys[row] for row in missing], made)
            for row, tokens in zip(missing, made, strict=True):
                found[row] = tokens
        return [tokens for tokens in found if tokens is not None]
