"""Batches of nearly equal lengths, cut at the least cost."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cerberank_models.buckets import BucketRule, buckets_of

lengths_of_few = st.lists(st.integers(1, 128), min_size=1, max_size=9)
rules = st.builds(BucketRule, tokens=st.integers(1, 500), overhead=st.integers(0, 200))


def cost(batches: list[np.ndarray], rule: BucketRule) -> int:
    """Padded tokens and overhead; batches are given by their lengths."""
    return sum(int(batch.max()) * len(batch) + rule.overhead for batch in batches)


def cheapest(falling: np.ndarray, rule: BucketRule) -> int:
    """Over all ways to cut sorted lengths."""
    costs = []
    for cuts in itertools.product([False, True], repeat=len(falling) - 1):
        batches = np.split(falling, np.flatnonzero(cuts) + 1)
        if all(len(batch) == 1 or batch.max() * len(batch) <= rule.tokens for batch in batches):
            costs.append(cost(batches, rule))
    return min(costs)


@given(lengths=lengths_of_few, rule=rules)
def test_no_other_cut_costs_less(lengths: list[int], rule: BucketRule) -> None:
    """Against brute force; every pair is in one batch, no batch but a single pair is over the limit."""
    array = np.asarray(lengths)
    rows = list(buckets_of(array, rule))
    assert sorted(np.concatenate(rows)) == list(range(len(lengths)))
    batches = [array[batch] for batch in rows]
    assert all(len(batch) == 1 or batch.max() * len(batch) <= rule.tokens for batch in batches)
    assert cost(batches, rule) == cheapest(-np.sort(-array), rule)


@given(seed=st.integers(0, 1000))
def test_two_hundred_candidates_waste_at_most_four_percent(seed: int) -> None:
    """The target of the issue, on lengths spread like those of sentences."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(16 + rng.lognormal(3.3, 0.5, 200), 18, 128).astype(np.int64)
    padded = sum(int(lengths[rows].max()) * len(rows) for rows in buckets_of(lengths, BucketRule()))
    assert 1 - lengths.sum() / padded <= 0.04


def test_every_thread_gets_a_batch() -> None:
    """A small question is cut for the sake of its latency; a large one is cut for the cache anyway."""
    lengths = np.full(20, 50)
    assert len(list(buckets_of(lengths, BucketRule().shared(1000, 4)))) == 4
    assert BucketRule().shared(1_000_000, 4) == BucketRule()
    assert BucketRule().shared(0, 4).tokens == 1
    assert BucketRule().shared(10, 1) == BucketRule()


def test_nothing_makes_no_batch() -> None:
    """An empty state is run without a batch."""
    assert list(buckets_of(np.zeros(0, dtype=np.int64), BucketRule())) == []
