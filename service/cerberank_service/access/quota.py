"""A quota by the minute as a token bucket. Pure except for its clock."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """A token bucket with the capacity of one minute.

    It may be overdrawn by one question, because one may cost more than a minute's worth.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        """The bucket is full at first; `clock` gives seconds and is monotonic."""
        self.per_minute = per_minute
        self._clock, self._filled = clock, clock()
        self._level = float(per_minute)

    def wait(self) -> float:
        """Seconds until the level is at least one; 0 when it is."""
        self._fill()
        return max(0.0, (1.0 - self._level) * 60.0 / self.per_minute)

    def take(self, amount: int) -> None:
        """Take `amount`, even below zero: later requests wait until the bucket is refilled.

        A negative amount gives back what was taken.
        """
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self.per_minute, self._level + (now - self._filled) * self.per_minute / 60.0)
        self._filled = now
