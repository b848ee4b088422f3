"""The pairs of a decoder's step that begin with the same tokens, and the places of these and the other tokens.

NumPy alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cerberank_models.encoding import EncodedPairs

Tokens = NDArray[np.int64]
"""Places in the packed tokens of all pairs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedPrefixes:
    """n pairs in G groups; those of a group begin with the same tokens, as far as `EncodedPairs.prefixes` says."""

    group: NDArray[np.int64]
    """Shape [n]."""
    lengths: NDArray[np.int64]
    """Shape [G]: the tokens of each group's prefix; 0 where pairs state none."""
    starts: NDArray[np.int64]
    """Shape [G]: the place of each prefix in its group's first pair."""
    offsets: NDArray[np.int64]
    """The pairs' own."""

    @classmethod
    def of(cls, pairs: EncodedPairs) -> SharedPrefixes:
        """Compare what the pairs begin with."""
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
        """Shape [n]: the tokens of each pair behind its prefix."""
        return np.diff(self.offsets) - self.lengths[self.group]

    def prefixes(self) -> tuple[Tokens, NDArray[np.int64]]:
        """The places of all prefixes, one after another, and their offsets `[G + 1]`."""
        return places(self.starts, self.lengths)

    def copies(self) -> tuple[Tokens, NDArray[np.int64]]:
        """The places of the prefixes in all pairs."""
        return places(self.offsets[:-1], self.lengths[self.group])

    def behind(self, rows: NDArray[np.int64]) -> tuple[Tokens, NDArray[np.int64]]:
        """The places of what follows the prefixes of `rows`, and the offsets of these rests."""
        return places(self.offsets[rows] + self.lengths[self.group[rows]], self.rests[rows])


def places(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[Tokens, NDArray[np.int64]]:
    """The numbers `starts[i] .. starts[i] + lengths[i] - 1` one after another, and where those of each i begin.

    >>> [each.tolist() for each in places(np.array([10, 40]), np.array([3, 2]))]
    [[10, 11, 12, 40, 41], [0, 3, 5]]
    """
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths), offsets
