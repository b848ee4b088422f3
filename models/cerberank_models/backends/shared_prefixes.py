"""Groups the pairs of a decoder's step by the tokens that they begin with, so that equal prefixes are computed once.

This module computes only indices, in NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cerberank_models.encoding import EncodedPairs, offsets_of

Tokens = NDArray[np.int64]
"""Indices into the packed tokens of all pairs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedPrefixes:
    """n pairs in G groups. The pairs of a group have the same prefix, whose length `EncodedPairs.prefixes` states."""

    group: NDArray[np.int64]
    """Shape [n]: the group of each pair."""
    lengths: NDArray[np.int64]
    """Shape [G]: the number of tokens of each group's prefix; 0 if `EncodedPairs.prefixes` is None."""
    starts: NDArray[np.int64]
    """Shape [G]: the index of the first token of each prefix, in the first pair of its group."""
    offsets: NDArray[np.int64]
    """Shape [n + 1]: the offsets of the pairs."""

    @classmethod
    def of(cls, pairs: EncodedPairs) -> SharedPrefixes:
        """Group the pairs by comparing their prefixes."""
        count = len(pairs)
        lengths = np.zeros(count, np.int64) if pairs.prefixes is None else pairs.prefixes
        groups: dict[bytes, int] = {}
        group = np.empty(count, np.int64)
        first: list[int] = []
        for row, (start, length) in enumerate(zip(pairs.offsets[:-1].tolist(), lengths.tolist(), strict=True)):
            key = pairs.token_ids[start : start + length].tobytes()
            if key not in groups:
                groups[key] = len(first)
                first.append(row)
            group[row] = groups[key]
        return cls(group=group, lengths=lengths[first], starts=pairs.offsets[first], offsets=pairs.offsets)

    @property
    def rests(self) -> NDArray[np.int64]:
        """Shape [n]: the number of tokens of each pair after its prefix."""
        return np.diff(self.offsets) - self.lengths[self.group]

    def prefixes(self) -> tuple[Tokens, NDArray[np.int64]]:
        """The indices of all prefixes' tokens, one prefix after another, and the offsets `[G + 1]` of the prefixes."""
        return places(self.starts, self.lengths)

    def copies(self) -> tuple[Tokens, NDArray[np.int64]]:
        """The indices of the prefix's tokens in every pair, and their offsets `[n + 1]`."""
        return places(self.offsets[:-1], self.lengths[self.group])

    def behind(self, rows: NDArray[np.int64]) -> tuple[Tokens, NDArray[np.int64]]:
        """The indices of the tokens after the prefixes in the pairs `rows`, and their offsets."""
        return places(self.offsets[rows] + self.lengths[self.group[rows]], self.rests[rows])


def places(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[Tokens, NDArray[np.int64]]:
    """The numbers `starts[i] .. starts[i] + lengths[i] - 1` for all i, one range after another, and their offsets.

    >>> [each.tolist() for each in places(np.array([10, 40]), np.array([3, 2]))]
    [[10, 11, 12, 40, 41], [0, 3, 5]]
    """
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths), offsets
