"""The map under the caches: what it keeps and forgets, and what it counts."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from cerberank_models.generations import Generations

ENTRY_BYTES = 10


def entries(most_bytes: int) -> Generations[bytes]:
    return Generations(most_bytes, entry_bytes=ENTRY_BYTES, item_bytes=1)


def missing(kept: Generations[bytes], texts: list[str], scope: str = "") -> list[str]:
    """The texts that the map did not have, which are put into it; all others have their own values."""
    keys = kept.keys(scope, texts)
    found = kept.find(keys)
    assert all(value in (None, text.encode()) for text, value in zip(texts, found, strict=True))
    new = [row for row, value in enumerate(found) if value is None]
    kept.put([keys[row] for row in new], [texts[row].encode() for row in new])
    return [texts[row] for row in new]


def test_hits_misses_and_size_are_counted() -> None:
    """Values come in the order of the keys; a text that occurs twice is kept once."""
    kept = entries(10**6)
    assert missing(kept, ["a", "bb", "bb"]) == ["a", "bb", "bb"]
    assert missing(kept, ["c", "bb", "d", "a", ""]) == ["c", "d", ""]
    assert missing(kept, ["", "a", "bb", "c", "d"]) == []
    assert (kept.counts.hits, kept.counts.misses) == (7, 6)
    assert kept.counts.size == 5 * ENTRY_BYTES + len("abbcd")


def test_scopes_share_nothing() -> None:
    """A text of one scope is unknown in another, also where scope and text together are the same characters."""
    kept = entries(10**6)
    missing(kept, ["bc"], "a")
    assert missing(kept, ["c"], "ab") == ["c"]
    assert missing(kept, ["bc"], "A") == ["bc"]
    assert missing(kept, ["bc"], "a") == []


def test_what_was_used_last_stays() -> None:
    """An entry outlives half the bound of others, and for longer if it is used; what is not used goes."""
    kept = entries(6 * (ENTRY_BYTES + 1))
    missing(kept, ["a", "b", "c"])
    missing(kept, ["d", "e"])
    assert missing(kept, ["a"]) == []  # enters the young generation again, which is full now
    assert missing(kept, ["f", "g", "h"]) == ["f", "g", "h"]
    assert missing(kept, ["d", "e", "a"]) == []
    assert missing(kept, ["b", "c"]) == ["b", "c"]


def test_an_entry_beyond_the_bound_is_not_kept() -> None:
    """A text that is larger than half of the map, and more texts than it holds, are answered."""
    kept = entries(2 * ENTRY_BYTES + 10)
    assert missing(kept, ["x" * 100]) == ["x" * 100]
    assert kept.counts.size == 0
    texts = [str(number) for number in range(100)]
    assert missing(kept, texts) == texts
    assert missing(kept, ["99"]) == []


@given(st.lists(st.lists(st.text("abcdefgh", max_size=2), max_size=8), max_size=30), st.integers(0, 20))
def test_whatever_is_asked_the_answer_is_right_and_the_bound_holds(questions: list[list[str]], most: int) -> None:
    """Sizes are exact sums, and what the last half of the bound asked for is still there."""
    kept = entries(most * (ENTRY_BYTES + 2))
    for texts in questions:
        missing(kept, texts)
        assert kept.counts.size == sum(ENTRY_BYTES + len(value) for value in kept.values()) <= most * (ENTRY_BYTES + 2)
        if 2 * len(set(texts)) <= most:
            assert missing(kept, texts) == []


def test_threads_share_it() -> None:
    """With evictions on every call each thread gets its own texts' values, and the size stays exact."""
    kept = entries(50 * ENTRY_BYTES)
    interval = sys.getswitchinterval()
    asked = ([str(seed * 7 % 90 + number) for number in range(20)] for seed in range(400))
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda texts: missing(kept, texts), asked))
    finally:
        sys.setswitchinterval(interval)
    counts = kept.counts
    assert counts.hits + counts.misses == 400 * 20
    assert counts.size == sum(ENTRY_BYTES + len(value) for value in kept.values()) <= 50 * ENTRY_BYTES
