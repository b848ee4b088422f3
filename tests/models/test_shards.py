"""Shards are mapped with their numbers."""

from __future__ import annotations

from collections.abc import Iterator

from cerberank_models.shards import map_here


def test_shards_are_taken_one_at_a_time() -> None:
    """A shard is read when the one before it is done, so that one is in memory."""
    order = []

    def shards() -> Iterator[tuple[int, str]]:
        for number, item in ((3, "a"), (1, "bb")):
            order.append(f"read {number}")
            yield number, item

    for number, size in map_here(len)(shards()):
        order.append(f"mapped {number}: {size}")
    assert order == ["read 3", "mapped 3: 1", "read 1", "mapped 1: 2"]
