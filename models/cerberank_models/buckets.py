"""Pairs of mixed lengths as padded batches of nearly equal ones. In: lengths. Out: the rows of each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketRule:
    """How a run is cut into padded batches."""

    tokens: int = 2048
    """Most tokens (padding included) of one batch: larger ones leave the processor's cache."""
    waste: float = 0.25
    """A batch ends before a pair that would be padded by more than this share of the batch's length."""


def buckets_of(lengths: NDArray[np.int64], rule: BucketRule) -> Iterator[NDArray[np.int64]]:
    """Rows of each padded batch, longest first."""
    longest_first = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(longest_first):
        longest = int(lengths[longest_first[start]])
        room = max(1, rule.tokens // longest)
        rows = longest_first[start : start + room]
        near = lengths[rows] >= longest * (1.0 - rule.waste)
        rows = rows[: int(near.sum())]  # lengths fall, so the near ones stand first
        yield rows
        start += len(rows)
