"""Trackers, which receive the figures of a run by step, also after a resume.

The ids of a run in trackers are stored in `tracking.json` of its folder, so that a resumed run finds them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from cerberank_models.checkpoint.atomic import write_json
from cerberank_models.output import note
from cerberank_training.runs.tracking.log_file import LogFile

FILE = "tracking.json"


class Tracker(Protocol):
    """Takes the figures of one run. Only the first of several processes has trackers."""

    def begin(self, step: int, seen: Mapping[str, int]) -> None:
        """Called once, before any figure. The run continues after `step`; 0 is its beginning.

        `seen` has the last step of each figure that earlier calls of the run have logged. If the run was killed, this
        step may be later than `step`. A tracker then removes the points after `step` or, if it cannot, ignores figures
        of steps that were seen. A kill may have left it one step ahead of `seen`.
        """

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Receive the figures of `step` by name."""

    def close(self, *, finished: bool) -> None:
        """Called once at the end; `finished` is False when an error or an interruption ends the run."""


def unseen(step: int, values: Mapping[str, float], seen: Mapping[str, int]) -> dict[str, float]:
    """The figures that no earlier call has logged.

    >>> unseen(7, {"loss": 0.5, "dev_map": 60.0}, {"loss": 7, "dev_map": 5})
    {'dev_map': 60.0}
    """
    return {name: value for name, value in values.items() if step > seen.get(name, -1)}


def stored_id(folder: Path, tracker: str) -> str | None:
    """The id that this tracker gave the run in `folder`; None if there is none."""
    return _ids(folder).get(tracker)


def store_id(folder: Path, tracker: str, value: str) -> None:
    """Store the id that this tracker gave the run in `folder`."""
    write_json(folder / FILE, _ids(folder) | {tracker: value})


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
                raise ValueError(f"--track {name} cannot begin: {_first_line(error)}") from error
        self._log.begin(step, seen)

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Give figures of `step` to all trackers, and then to the log: what the log has, no tracker lacks."""
        self._call_all(lambda tracker: tracker.figures(step, values))
        self._log.figures(step, values)

    def close(self, *, finished: bool) -> None:
        """Close all trackers."""
        self._call_all(lambda tracker: tracker.close(finished=finished))

    def _call_all(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                call(tracker)
            except Exception as error:  # whatever a library raises
                del self._trackers[name]
                note(f"cerberank: {name} tracks no further, the run goes on: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    """The error's first line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _ids(folder: Path) -> dict[str, str]:
    path = folder / FILE
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
