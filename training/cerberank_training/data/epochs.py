"""The order in which training visits questions or pairs: each epoch is shuffled, depending only on the seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class EpochOrder:
    """Gives the items of any step without computing earlier steps, so that a killed run resumes with the same items."""

    def __init__(self, size: int, *, seed: int, compact: bool = False) -> None:
        """Order `size` (at least 1) items.

        With `compact`, which is for tens of millions of pairs, NumPy draws the order (a different one), and memory
        holds four bytes for each item.
        """
        self._size = size
        self._seed = seed
        self._compact = compact
        self._orders: dict[int, Sequence[int] | NDArray[np.uint32]] = {}

    def step(self, step: int, size: int) -> list[int]:
        """The indices of the `size` items of step `step`, counted from 0. A step may span epochs."""
        chosen = range(step * size, (step + 1) * size)
        return [int(self._order(index // self._size)[index % self._size]) for index in chosen]

    def _order(self, epoch: int) -> Sequence[int] | NDArray[np.uint32]:
        """The shuffled order of an epoch. Two are cached, because shuffling is slow and a step may span two epochs."""
        if epoch not in self._orders:
            previous = {number: order for number, order in self._orders.items() if number == epoch - 1}
            self._orders = previous | {epoch: self._shuffled(random.Random(f"{self._seed}/epoch/{epoch}"))}
        return self._orders[epoch]

    def _shuffled(self, rng: random.Random) -> Sequence[int] | NDArray[np.uint32]:
        if self._compact:
            order = np.arange(self._size, dtype=np.uint32)
            np.random.default_rng(rng.getrandbits(64)).shuffle(order)
            return order
        listed = list(range(self._size))
        rng.shuffle(listed)
        return listed
