"""The order in which training visits its questions: a shuffle for each epoch, from the seed alone."""

from __future__ import annotations

import random


class EpochOrder:
    """Gives the questions of any step without the steps before it, so that a killed run resumes with the same ones."""

    def __init__(self, questions: int, *, seed: int) -> None:
        """Order `questions` (at least 1) questions."""
        self._questions, self._seed = questions, seed
        self._orders: dict[int, list[int]] = {}

    def step(self, step: int, size: int) -> list[int]:
        """The `size` questions' indices of step `step`, counted from 0; a step may span epochs."""
        chosen = range(step * size, (step + 1) * size)
        return [self._order(index // self._questions)[index % self._questions] for index in chosen]

    def _order(self, epoch: int) -> list[int]:
        """The shuffled order of an epoch; two orders are cached, because a step may span two and shuffling is slow."""
        if epoch not in self._orders:
            order = list(range(self._questions))
            random.Random(f"{self._seed}/epoch/{epoch}").shuffle(order)
            self._orders = {known: self._orders[known] for known in self._orders if known == epoch - 1} | {epoch: order}
        return self._orders[epoch]
