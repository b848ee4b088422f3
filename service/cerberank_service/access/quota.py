"""How much a caller may take in a minute: a bucket that fills steadily. Pure but for the clock that it is given."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """Holds a minute's worth at most. It may be overdrawn: what a question costs is known only when it is encoded."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        """Full; `clock` gives seconds and never goes back."""
        self.per_minute = per_minute
        self._clock, self._filled = clock, clock()
        self._level = float(per_minute)

    def wait(self) -> float:
        """Seconds until the next one may be taken; 0 for now."""
        self._fill()
        return max(0.0, (1.0 - self._level) * 60.0 / self.per_minute)

    def take(self, amount: int) -> None:
        """Take it, whether it is there or not: who comes next waits for it."""
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self.per_minute, self._level + (now - self._filled) * self.per_minute / 60.0)
        self._filled = now
