"""The log and the trackers of one run. A tracker that fails is reported once, and not called again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from cerberank_training.tracking.log_file import LogFile
from cerberank_training.tracking.tracker import Tracker


class Tracking:
    """Gives every figure to the log of the run's folder and to each tracker.

    An error of a tracker at the beginning ends the command, because no work is lost yet. A later error does not end a
    run of hours: a line on stderr reports it, and the run continues without the tracker.
    """

    def __init__(self, folder: Path, trackers: Mapping[str, Tracker]) -> None:
        """`trackers` are given by their names in messages."""
        self._log = LogFile(folder)
        self._trackers = dict(trackers)

    def begin(self, step: int) -> None:
        """Begin after `step`. Raises ValueError, which names the tracker that cannot begin."""
        seen = self._log.last_steps()  # a run that was killed before its first saved state has logged steps too
        for name, tracker in self._trackers.items():
            try:
                tracker.begin(step, seen)
            except Exception as error:
                raise ValueError(f"--track {name} cannot begin: {_said(error)}") from error
        self._log.begin(step, seen)

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Give figures of `step` to the log and all trackers."""
        self._log.figures(step, values)
        self._each(lambda tracker: tracker.figures(step, values))

    def close(self, *, finished: bool) -> None:
        """Close all trackers."""
        self._each(lambda tracker: tracker.close(finished=finished))

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                call(tracker)
            except Exception as error:  # whatever a library raises
                del self._trackers[name]
                print(  # noqa: T201
                    f"cerberank: {name} tracks no further, the run goes on: {_said(error)}", file=sys.stderr
                )


def _said(error: Exception) -> str:
    """The error's first line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
