"""The contract of a tracker, which receives the figures of a run by step, also after a resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Tracker(Protocol):
    """Takes the figures of one run. Only the first of several processes has trackers."""

    def begin(self, step: int, seen: Mapping[str, int]) -> None:
        """Called once, before any figure. The run continues after `step`; 0 is its beginning.

        `seen` has the last step of each figure that earlier calls of the run have given. If the run was killed, this
        step may be later than `step`. A tracker then removes the points after `step` or, if it cannot, ignores figures
        of steps that were seen.
        """

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Receive the figures of `step` by name."""

    def close(self, *, finished: bool) -> None:
        """Called once at the end; `finished` is False when an error or an interruption ends the run."""


def unseen(step: int, values: Mapping[str, float], seen: Mapping[str, int]) -> dict[str, float]:
    """The figures that no earlier call has given.

    >>> unseen(7, {"loss": 0.5, "dev_map": 60.0}, {"loss": 7, "dev_map": 5})
    {'dev_map': 60.0}
    """
    return {name: value for name, value in values.items() if step > seen.get(name, -1)}
