"""Cached vectors are those that were put; `test_generations` tests the map under the cache."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from tests.allocations import held_bytes

from cerberank_models.first_stage.vector_cache import ENTRY_BYTES, NUMBER_BYTES, VectorCache


def vectors(count: int, width: int = 4) -> list[np.ndarray]:
    return list(np.arange(count * width, dtype=np.float16).reshape(count, width))


def test_vectors_are_found_within_their_scope() -> None:
    """Found vectors are equal and in order; other scopes and unknown texts give None; counts are exact."""
    cache, made = VectorCache(10**6), vectors(3)
    cache.put("one", ["a", "b", "\ud800"], made)
    cached = cache.find("one", ["\ud800", "x", "a", "a"])
    assert cached[1] is None
    for got, wanted in zip([cached[0], cached[2], cached[3]], [made[2], made[0], made[0]], strict=True):
        assert got.tolist() == wanted.tolist()
    assert cache.find("two", ["a"]) == [None]
    assert (cache.counts.hits, cache.counts.misses) == (3, 2)
    assert cache.counts.size == 3 * (ENTRY_BYTES + 4 * NUMBER_BYTES)


def test_without_room_nothing_is_kept() -> None:
    """0 switches it off, and looks nothing up."""
    cache = VectorCache(0)
    cache.put("", ["a"], vectors(1))
    assert cache.find("", ["a"]) == [None]
    assert cache.counts.misses == 0


@pytest.mark.parametrize("width", [32, 5000])
def test_the_bound_is_on_real_memory(width: int) -> None:
    """Vectors cut from larger arrays are copied, so that allocations stay within the bound, and are half of it."""
    most = 512 * 1024
    cache = VectorCache(most)
    tracemalloc.start()
    try:
        count = 4 * most // (ENTRY_BYTES + NUMBER_BYTES * width)
        for first in range(0, count, 10):
            cache.put(
                "", [str(number) for number in range(first, first + 10)], list(np.zeros((20, width), np.float16))[:10]
            )
            if first % (count // 50 * 10) == 0:  # five looks, each of a tenth of a second; a quarter fills the cache
                now = held_bytes(__file__)
                assert now <= most
                assert now >= cache.counts.size / 2
    finally:
        tracemalloc.stop()
