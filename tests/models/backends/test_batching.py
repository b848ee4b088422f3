"""Batches of nearly equal lengths, cut at the least cost."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cerberank_models.backends.batching import BucketRule, buckets_of

Lengths = NDArray[np.int64]

lengths_of_few = st.lists(st.integers(1, 128), min_size=1, max_size=9)
rules = st.builds(
    BucketRule, tokens=st.integers(1, 500), overhead=st.integers(0, 200), least=st.sampled_from([1, 50, 200])
)


def padded(batch: Lengths) -> int:
    return int(batch.max()) * len(batch)


def cost(batches: list[Lengths], rule: BucketRule) -> int:
    """Padded tokens and overhead of batches, which are given by their lengths."""
    return sum(padded(batch) + rule.overhead for batch in batches)


def allowed(batches: list[Lengths], rule: BucketRule, threads: int) -> bool:
    """True if each batch keeps to the limit and, with several threads, to a thread's share of the remaining tokens."""
    left = sum(int(batch.sum()) for batch in batches)
    for batch in batches:
        share = rule.tokens if threads == 1 else max(rule.least, -(-left // threads))
        if len(batch) > 1 and padded(batch) > min(rule.tokens, share):
            return False
        left -= int(batch.sum())
    return True


def cheapest(falling: Lengths, rule: BucketRule, threads: int) -> int:
    """The least cost of all ways to cut sorted lengths."""
    costs = []
    for cuts in itertools.product([False, True], repeat=len(falling) - 1):
        batches = np.split(falling, np.flatnonzero(cuts) + 1)
        if allowed(batches, rule, threads):
            costs.append(cost(batches, rule))
    return min(costs)


@given(lengths=lengths_of_few, rule=rules, threads=st.integers(1, 4))
def test_no_other_cut_costs_less(lengths: list[int], rule: BucketRule, threads: int) -> None:
    """Batches cost as little as by brute force; each pair is in one batch, and only single pairs exceed the limit."""
    array = np.asarray(lengths)
    rows = list(buckets_of(array, rule, threads))
    assert sorted(np.concatenate(rows)) == list(range(len(lengths)))
    batches = [array[batch] for batch in rows]
    assert allowed(batches, rule, threads)
    assert cost(batches, rule) == cheapest(-np.sort(-array), rule, threads)


@given(seed=st.integers(0, 1000))
def test_two_hundred_candidates_waste_at_most_four_percent(seed: int) -> None:
    """The target of the issue, on lengths spread like those of sentences, for one thread and for two."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(16 + rng.lognormal(3.3, 0.5, 200), 18, 128).astype(np.int64)
    for threads in (1, 2):
        run = sum(padded(lengths[rows]) for rows in buckets_of(lengths, BucketRule(), threads))
        assert 1 - lengths.sum() / run <= 0.04


@given(length=st.integers(16, 128), threads=st.integers(2, 8))
def test_threads_are_done_together(length: int, threads: int) -> None:
    """Threads that take one batch after another need at most a tenth more than an equal share, overhead included."""
    lengths = np.full(threads * 4096 // length, length)
    busy = [0] * threads
    for rows in buckets_of(lengths, BucketRule(), threads):
        heapq.heapreplace(busy, busy[0] + padded(lengths[rows]) + BucketRule().overhead)
    assert max(busy) <= 1.1 * lengths.sum() / threads


def test_every_thread_gets_a_batch() -> None:
    """A question that fits into one batch is divided among the threads."""
    assert len(list(buckets_of(np.full(20, 50), BucketRule(), 4))) >= 4


def test_nothing_makes_no_batch() -> None:
    """No pairs give no batch, so an empty state can be run."""
    assert list(buckets_of(np.zeros(0, dtype=np.int64), BucketRule(), 2)) == []
