"""The contract of a tracker: it takes figures by step, and knows how a killed run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Tracker(Protocol):
    """Takes the figures of one run. Only the first of several processes has trackers."""

    def begin(self, step: int, seen: Mapping[str, int]) -> None:
        """Called once before any figure, by a run that goes on after `step`; 0 is a run's beginning.

        `seen` has the last step of each figure that earlier calls of the run gave, which may be later than `step` where
        the run was killed. A tracker removes points after `step` or, where it cannot, leaves out what was seen.
        """

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Take figures of `step`, by name."""

    def close(self, *, finished: bool) -> None:
        """Called once at the end; `finished` is False when an error or an interruption ends the run."""


def unseen(step: int, values: Mapping[str, float], seen: Mapping[str, int]) -> dict[str, float]:
    """The figures that no earlier call gave.

    >>> unseen(7, {"loss": 0.5, "dev_map": 60.0}, {"loss": 7, "dev_map": 5})
    {'dev_map': 60.0}
    """
    return {name: value for name, value in values.items() if step > seen.get(name, -1)}
