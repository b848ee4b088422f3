"""Tokens come from the cache where they are known; `test_generations` tests the map under it."""

from __future__ import annotations

import tracemalloc

import pytest
from tests.allocations import held_bytes

from cerberank_models.token_cache import ENTRY_BYTES, TokenCache


def tokenised(cache: TokenCache, texts: list[str]) -> list[str]:
    """The texts that had to be tokenised."""
    missing: list[str] = []

    def tokenise(rest: list[str]) -> list[bytes]:
        missing.extend(rest)
        return [text.encode() for text in rest]

    assert cache.tokens("", texts, tokenise) == [text.encode() for text in texts]
    return missing


def test_only_what_is_missing_is_tokenised() -> None:
    """Items come in the order of the texts, whichever of them were cached."""
    cache = TokenCache(10**6)
    assert tokenised(cache, ["a", "bb"]) == ["a", "bb"]
    assert tokenised(cache, ["c", "bb", "d", "a", ""]) == ["c", "d", ""]


def test_without_room_nothing_is_looked_up() -> None:
    """0 switches it off."""
    cache = TokenCache(0)
    assert tokenised(cache, ["a"]) == tokenised(cache, ["a"]) == ["a"]
    assert (cache.counts.hits, cache.counts.misses, cache.counts.size) == (0, 0, 0)


@pytest.mark.parametrize("tokens", [10, 128])
def test_the_bound_is_on_real_memory(tokens: int) -> None:
    """Python's allocations for a cache that forgets are at most what is counted, and at least half of it."""
    most = 512 * 1024
    cache = TokenCache(most)
    tracemalloc.start()
    try:
        count = 4 * most // (ENTRY_BYTES + 4 * tokens)
        for first in range(0, count, 100):
            texts = [str(number) for number in range(first, first + 100)]
            cache.tokens("", texts, lambda rest: [bytes(bytearray(4 * tokens)) for _ in rest])
            if first // 100 % (count // 800) == 0:  # at least eight looks; a quarter of the texts fills the cache
                now, counted = held_bytes(__file__), cache.counts.size
                assert counted / 2 <= now <= counted + 10_000  # and the hundred texts of this test
                assert counted <= most
    finally:
        tracemalloc.stop()
