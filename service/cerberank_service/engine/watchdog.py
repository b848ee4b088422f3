"""Notices an engine that makes no progress, such as one whose model call does not end.

Nothing can interrupt such a call, so the engine is given up: its questions are answered with an error, and its version
is not alive any more. A call that holds Python's lock stops the watchdog as well; the probes then time out themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LEAST_SECONDS = 30.0
"""An engine is never given up for a shorter pause."""
SLOWNESS = 20.0
"""Times its prediction that a step may take."""
TICK_SECONDS = 1.0
"""How often the watchdog looks."""


class Pause:
    """The seconds for which an engine has had questions without making progress. Pure."""

    def __init__(self) -> None:
        """No progress has been seen yet."""
        self.seconds = 0.0
        self._seen: int | None = None
        self._last = 0.0

    def look(self, now: float, progress: int | None) -> None:
        """`progress` is a count that changes with any progress, None without questions; `now` is in seconds.

        The time since the last look counts as two ticks at most: after more than that the machine or the process was
        suspended, and so was the engine.
        """
        if progress is None or progress != self._seen:
            self.seconds = 0.0
        else:
            self.seconds += min(now - self._last, 2 * TICK_SECONDS)
        self._seen, self._last = progress, now


class Watchdog:
    """A thread that watches the engine's thread for as long as it runs."""

    def __init__(self, watched: threading.Thread) -> None:
        """Nothing is watched before `start`."""
        self._watched = watched
        self._pause = Pause()

    @property
    def seconds(self) -> float:
        """Seconds without progress, as of the last tick; they stay until the thread of an engine given up ends."""
        return self._pause.seconds if self._watched.is_alive() else 0.0

    def start(
        self, progress: Callable[[], int | None], predicted: Callable[[], float], give_up: Callable[[float], None]
    ) -> None:
        """Start watching a thread that runs.

        For `progress` see `Pause.look`; `predicted` tells the seconds of the running step; `give_up` is called once,
        with the seconds of the pause. Only the watching thread holds them: held by this object, which the engine has,
        they would keep an unloaded version's memory until the garbage collector looks for cycles.
        """
        threading.Thread(target=self._run, args=(progress, predicted, give_up), name="watchdog", daemon=True).start()

    def _run(
        self, progress: Callable[[], int | None], predicted: Callable[[], float], give_up: Callable[[float], None]
    ) -> None:
        while self._watched.is_alive():
            self._pause.look(time.monotonic(), progress())
            if self._pause.seconds > max(LEAST_SECONDS, SLOWNESS * predicted()):
                give_up(self._pause.seconds)
                return
            self._watched.join(TICK_SECONDS)
