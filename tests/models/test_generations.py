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


def missing(generations: Generations[bytes], texts: list[str], scope: str = "") -> list[str]:
    """The texts that the map did not have, which are put into it; all others have their own values."""
    keys = generations.keys(scope, texts)
    values = generations.find(keys)
    assert all(value in (None, text.encode()) for text, value in zip(texts, values, strict=True))
    new = [row for row, value in enumerate(values) if value is None]
    generations.put([keys[row] for row in new], [texts[row].encode() for row in new])
    return [texts[row] for row in new]


def test_hits_misses_and_size_are_counted() -> None:
    """Values come in the order of the keys; a text that occurs twice is kept once."""
    generations = entries(10**6)
    assert missing(generations, ["a", "bb", "bb"]) == ["a", "bb", "bb"]
    assert missing(generations, ["c", "bb", "d", "a", ""]) == ["c", "d", ""]
    assert missing(generations, ["", "a", "bb", "c", "d"]) == []
    assert (generations.counts.hits, generations.counts.misses) == (7, 6)
    assert generations.counts.size == 5 * ENTRY_BYTES + len("abbcd")


def test_scopes_share_nothing() -> None:
    """A text of one scope is unknown in another, also where scope and text together are the same characters."""
    generations = entries(10**6)
    missing(generations, ["bc"], "a")
    assert missing(generations, ["c"], "ab") == ["c"]
    assert missing(generations, ["bc"], "A") == ["bc"]
    assert missing(generations, ["bc"], "a") == []


def test_what_was_used_last_stays() -> None:
    """An entry outlives half the bound of others, and for longer if it is used; what is not used goes."""
    generations = entries(6 * (ENTRY_BYTES + 1))
    missing(generations, ["a", "b", "c"])
    missing(generations, ["d", "e"])
    assert missing(generations, ["a"]) == []  # enters the young generation again, which is full now
    assert missing(generations, ["f", "g", "h"]) == ["f", "g", "h"]
    assert missing(generations, ["d", "e", "a"]) == []
    assert missing(generations, ["b", "c"]) == ["b", "c"]


def test_an_entry_beyond_the_bound_is_not_kept() -> None:
    """A text that is larger than half of the map, and more texts than it holds, are answered."""
    generations = entries(2 * ENTRY_BYTES + 10)
    assert missing(generations, ["x" * 100]) == ["x" * 100]
    assert generations.counts.size == 0
    texts = [str(number) for number in range(100)]
    assert missing(generations, texts) == texts
    assert missing(generations, ["99"]) == []


@given(st.lists(st.lists(st.text("abcdefgh", max_size=2), max_size=8), max_size=30), st.integers(0, 20))
def test_whatever_is_asked_the_answer_is_right_and_the_bound_holds(questions: list[list[str]], most: int) -> None:
    """Sizes are exact sums, and what the last half of the bound asked for is still there."""
    generations = entries(most * (ENTRY_BYTES + 2))
    for texts in questions:
        missing(generations, texts)
        assert (
            generations.counts.size
            == sum(ENTRY_BYTES + len(value) for value in generations.values())
            <= most * (ENTRY_BYTES + 2)
        )
        if 2 * len(set(texts)) <= most:
            assert missing(generations, texts) == []


def test_threads_share_it() -> None:
    """With evictions on every call each thread gets its own texts' values, and the size stays exact."""
    generations = entries(50 * ENTRY_BYTES)
    interval = sys.getswitchinterval()
    batches = ([str(seed * 7 % 90 + number) for number in range(20)] for seed in range(400))
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda texts: missing(generations, texts), batches))
    finally:
        sys.setswitchinterval(interval)
    counts = generations.counts
    assert counts.hits + counts.misses == 400 * 20
    assert counts.size == sum(ENTRY_BYTES + len(value) for value in generations.values()) <= 50 * ENTRY_BYTES
