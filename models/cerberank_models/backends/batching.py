"""Groups pairs of mixed lengths into padded batches of similar lengths. In: lengths. Out: the rows of each batch.

The last batches are small, so that threads which take one batch after another finish together (guided
self-scheduling, Polychronopoulos and Kuck 1987): nine equal batches on two threads would take a ninth longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketRule:
    """The cost of a batch, in tokens; pairs are cut into the batches with the least total cost."""

    tokens: int = 1024
    """Most tokens (padding included) of one batch: larger batches do not fit into the processor's cache."""
    overhead: int = 16
    """The fixed cost of a batch, as the number of tokens that take as long (6 layers of width 384 in int8)."""
    least: int = 128
    """Work is not divided among threads into batches with fewer tokens than this."""

    def limits(self, falling: NDArray[np.int64], threads: int) -> NDArray[np.int64]:
        """For each pair, the most tokens of a batch that begins there: a thread's share of the rest, within bounds."""
        if threads == 1:
            return np.full(len(falling), self.tokens)
        left = np.cumsum(falling[::-1])[::-1]
        return np.minimum(self.tokens, np.maximum(self.least, -(-left // threads)))


def buckets_of(lengths: NDArray[np.int64], rule: BucketRule, threads: int = 1) -> Iterator[NDArray[np.int64]]:
    """Rows of each padded batch, longest first: the cheapest way to cut the sorted pairs.

    A batch costs its longest pair's tokens for each of its pairs, and the overhead. `threads` is the number of
    threads that take batches one after another.
    """
    longest_first = np.argsort(-lengths, kind="stable")
    start = 0
    falling = lengths[longest_first]
    for end in _ends(falling, rule.limits(falling, threads), rule.overhead):
        yield longest_first[start:end]
        start = end


def _ends(falling: NDArray[np.int64], limits: NDArray[np.int64], overhead: int) -> Iterator[int]:
    """The places where the batches end, by dynamic programming from the last pair to the first."""
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
