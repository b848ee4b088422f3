"""Pairs of mixed lengths as padded batches of nearly equal ones. In: lengths. Out: the rows of each batch.

Threads that take batch after batch are done together when the last batches are small (guided self-scheduling,
Polychronopoulos and Kuck 1987): nine equal ones on two threads would leave one of them idle for a ninth of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketRule:
    """What batches cost, so that they can be cut at the least cost."""

    tokens: int = 1024
    """Most tokens (padding included) of one batch: larger ones leave the processor's cache."""
    overhead: int = 16
    """Tokens that could be run in the time that a batch takes beyond its tokens (6 layers of width 384 in int8)."""
    least: int = 128
    """Tokens below which a batch is not cut for the sake of other threads."""

    def limits(self, falling: NDArray[np.int64], threads: int) -> NDArray[np.int64]:
        """Most tokens of a batch that begins at each pair: one thread's share of what is left, within bounds."""
        if threads == 1:
            return np.full(len(falling), self.tokens)
        left = np.cumsum(falling[::-1])[::-1]
        return np.minimum(self.tokens, np.maximum(self.least, -(-left // threads)))


def buckets_of(lengths: NDArray[np.int64], rule: BucketRule, threads: int = 1) -> Iterator[NDArray[np.int64]]:
    """Rows of each padded batch, longest first: of all ways to cut the sorted pairs, the one that costs least.

    A batch costs its longest pair's tokens for each of its pairs, and the overhead. `threads` run batches in turn.
    """
    longest_first = np.argsort(-lengths, kind="stable")
    start = 0
    falling = lengths[longest_first]
    for end in _ends(falling, rule.limits(falling, threads), rule.overhead):
        yield longest_first[start:end]
        start = end


def _ends(falling: NDArray[np.int64], limits: NDArray[np.int64], overhead: int) -> Iterator[int]:
    """Where the batches end, by dynamic programming from the last pair to the first."""
    pairs = len(falling)
    costs, ends = np.zeros(pairs + 1, dtype=np.int64), np.zeros(pairs, dtype=np.int64)
    sizes = np.arange(1, pairs + 1)
    for start in range(pairs - 1, -1, -1):
        longest = falling[start]
        most = min(pairs - start, max(1, int(limits[start]) // int(longest)))
        totals = costs[start + 1 : start + most + 1] + longest * sizes[:most]
        best = int(totals.argmin())
        costs[start], ends[start] = totals[best] + overhead, start + best + 1
    end = 0
    while end < pairs:
        end = int(ends[end])
        yield end
