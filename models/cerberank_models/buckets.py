"""Pairs of mixed lengths as padded batches of nearly equal ones. In: lengths. Out: the rows of each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketRule:
    """What batches cost, so that they can be cut at the least cost."""

    tokens: int = 1024
    """Most tokens (padding included) of one batch: larger ones leave the processor's cache."""
    overhead: int = 16
    """Tokens that could be run in the time that a batch takes beyond its tokens (6 layers of width 384 in int8)."""

    def shared(self, tokens: int, threads: int) -> BucketRule:
        """With batches so small that each of `threads` gets one of `tokens` in all."""
        if threads == 1:
            return self
        return replace(self, tokens=max(1, min(self.tokens, -(-tokens // threads))))


def buckets_of(lengths: NDArray[np.int64], rule: BucketRule) -> Iterator[NDArray[np.int64]]:
    """Rows of each padded batch, longest first: of all ways to cut the sorted pairs, the one that costs least.

    A batch costs its longest pair's tokens for each of its pairs, and the overhead.
    """
    longest_first = np.argsort(-lengths, kind="stable")
    start = 0
    for end in _ends(lengths[longest_first], rule):
        yield longest_first[start:end]
        start = end


def _ends(falling: NDArray[np.int64], rule: BucketRule) -> Iterator[int]:
    """Where the batches end, by dynamic programming from the last pair to the first."""
    pairs = len(falling)
    costs, ends = np.zeros(pairs + 1, dtype=np.int64), np.zeros(pairs, dtype=np.int64)
    sizes = np.arange(1, pairs + 1)
    for start in range(pairs - 1, -1, -1):
        longest = falling[start]
        most = min(pairs - start, max(1, rule.tokens // int(longest)))
        totals = costs[start + 1 : start + most + 1] + longest * sizes[:most]
        best = int(totals.argmin())
        costs[start], ends[start] = totals[best] + rule.overhead, start + best + 1
    end = 0
    while end < pairs:
        end = int(ends[end])
        yield end
