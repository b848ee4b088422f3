from __future__ import annotations

import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_models.token_cache import ENTRY_BYTES, TokenCache


def made_of(texts: list[str]) -> list[bytes]:
    return [text.encode() for text in texts]


def asked(cache: TokenCache, texts: list[str], scope: str = "") -> list[str]:
    """The texts that had to be tokenised."""
    missing: list[str] = []

    def tokenise(rest: list[str]) -> list[bytes]:
        missing.extend(rest)
        return made_of(rest)

    assert cache.tokens(scope, texts, tokenise) == made_of(texts)
    return missing


def test_only_what_is_missing_is_tokenised() -> None:
    """Items come in the order of the texts, whichever of them were cached; hits, misses and size are counted."""
    cache = TokenCache(10**6)
    assert asked(cache, ["a", "bb"]) == ["a", "bb"]
    assert asked(cache, ["c", "bb", "d", "a", ""]) == ["c", "d", ""]
    assert asked(cache, ["", "a", "bb", "c", "d"]) == []
    assert (cache.counts.hits, cache.counts.misses) == (7, 5)
    assert cache.counts.size == 5 * ENTRY_BYTES + len("abbcd")


def test_scopes_share_nothing() -> None:
    """A text of one scope is unknown in another, also where scope and text together are the same characters."""
    cache = TokenCache(10**6)
    asked(cache, ["bc"], "a")
    assert asked(cache, ["c"], "ab") == ["c"]
    assert asked(cache, ["bc"], "A") == ["bc"]
    assert asked(cache, ["bc"], "a") == []


def test_what_was_used_last_stays() -> None:
    """An entry outlives half the bound of others, and for longer if it is used; what is not used goes."""
    cache = TokenCache(6 * (ENTRY_BYTES + 1))
    asked(cache, ["a", "b", "c"])
    asked(cache, ["d", "e"])
    assert asked(cache, ["a"]) == []  # enters the young generation again, which is full now
    assert asked(cache, ["f", "g", "h"]) == ["f", "g", "h"]
    assert asked(cache, ["d", "e", "a"]) == []
    assert asked(cache, ["b", "c"]) == ["b", "c"]


@given(st.lists(st.lists(st.text("abcdefgh", max_size=2), max_size=8), max_size=30), st.integers(0, 20))
def test_whatever_is_asked_the_answer_is_right_and_the_bound_holds(questions: list[list[str]], entries: int) -> None:
    """Sizes are exact sums, and what the last half of the bound asked for is still there."""
    cache = TokenCache(entries * (ENTRY_BYTES + 2))
    for texts in questions:
        asked(cache, texts)
        held = cache.entries.values()
        assert cache.counts.size == sum(ENTRY_BYTES + len(tokens) for tokens in held) <= entries * (ENTRY_BYTES + 2)
        if 2 * len(set(texts)) <= entries:
            assert asked(cache, texts) == []


def test_an_entry_beyond_the_bound_is_not_kept() -> None:
    """A text that is longer than the whole cache, and a question with more texts than it holds, are answered."""
    cache = TokenCache(2 * ENTRY_BYTES + 10)
    assert asked(cache, ["x" * 100]) == ["x" * 100]
    assert cache.counts.size == 0
    texts = [str(number) for number in range(100)]
    assert asked(cache, texts) == texts
    assert asked(cache, ["99"]) == []


def test_a_text_that_occurs_twice_is_kept_once() -> None:
    """Its size is counted once."""
    cache = TokenCache(10**6)
    assert asked(cache, ["a", "a"]) == ["a", "a"]
    assert cache.counts.size == ENTRY_BYTES + 1


def test_without_room_nothing_is_looked_up() -> None:
    """0 switches it off."""
    cache = TokenCache(0)
    assert asked(cache, ["a"]) == asked(cache, ["a"]) == ["a"]
    assert (cache.counts.hits, cache.counts.misses, cache.counts.size) == (0, 0, 0)


@pytest.mark.parametrize("tokens", [10, 50, 128])
def test_the_bound_is_on_real_memory(tokens: int) -> None:
    """Python's allocations for a cache that forgets stay within the bound, and take half of what is counted or more."""
    most = 2 * 1024 * 1024
    cache = TokenCache(most)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for first in range(0, 4 * most // (ENTRY_BYTES + 4 * tokens), 100):
            texts = [str(number) for number in range(first, first + 100)]
            cache.tokens("", texts, lambda rest: [bytes(bytearray(4 * tokens)) for _ in rest])
            now, _ = tracemalloc.get_traced_memory()
            assert now - before <= most
            assert now - before >= cache.counts.size / 2
    finally:
        tracemalloc.stop()


def test_threads_share_it() -> None:
    """With evictions on every call each thread gets its own texts' items, and the size stays exact."""
    cache = TokenCache(50 * ENTRY_BYTES)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda seed: asked(cache, [str(seed * 7 % 90 + number) for number in range(20)]), range(400)))
    finally:
        sys.setswitchinterval(interval)
    counts = cache.counts
    assert counts.hits + counts.misses == 400 * 20
    held = cache.entries.values()
    assert counts.size == sum(ENTRY_BYTES + len(tokens) for tokens in held) <= 50 * ENTRY_BYTES
