"""Groups pairs of mixed lengths into padded batches of similar lengths.

The last batches are small, so that threads that take one batch after another finish together (guided self-scheduling,
Polychronopoulos and Kuck 1987). Nine equal batches on two threads would take a ninth longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketRule:
    """The limits and the cost of a batch. Pairs are divided into the batches with the lowest total cost."""

    tokens: int = 1024
    """The most tokens of a batch, including padding. Larger batches do not fit into the processor's cache."""
    overhead: int = 16
    """The fixed cost of a batch, as the number of tokens that take as long to compute (6 int8 layers of width 384)."""
    least: int = 128
    """The fewest tokens of a batch that is made small so that several threads have work."""

    def limits(self, falling: NDArray[np.int64], threads: int) -> NDArray[np.int64]:
        """The most tokens of a batch that begins at each pair: a thread's share of the remaining tokens, bounded."""
        if threads == 1:
            return np.full(len(falling), self.tokens)
        left = np.cumsum(falling[::-1])[::-1]
        return np.minimum(self.tokens, np.maximum(self.least, -(-left // threads)))


def buckets_of(lengths: NDArray[np.int64], rule: BucketRule, threads: int = 1) -> Iterator[NDArray[np.int64]]:
    """The rows of each padded batch, longest pairs first, with the lowest total cost.

    The cost of a batch is the number of its pairs times the tokens of its longest pair, plus the overhead. `threads` is
    the number of threads that take batches one after another.
    """
    longest_first = np.argsort(-lengths, kind="stable")
    start = 0
    falling = lengths[longest_first]
    for end in _ends(falling, rule.limits(falling, threads), rule.overhead):
        yield longest_first[start:end]
        start = end


def _ends(falling: NDArray[np.int64], limits: NDArray[np.int64], overhead: int) -> Iterator[int]:
    """The end of each batch, computed by dynamic programming from the last pair to the first."""
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
