"""Notices when the process has no file descriptor left.

uvloop's event loop then closes every new connection at once, probes among them, and says nothing about it. On
Windows, without uvloop, asyncio's own loop leaves them waiting, tries again every second and logs it.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable

from cerberank_service.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0


def none_left() -> bool:
    """Whether no file can be opened for lack of a descriptor, of the process or of the system."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in {errno.EMFILE, errno.ENFILE}
    return False


class DescriptorWatch:
    """Looks every second; logs a shortage when it begins and ends, and counts its seconds."""

    def __init__(self, metrics: Metrics, none_left: Callable[[], bool] = none_left) -> None:
        """Nothing is looked at before `start`."""
        self._counter, self._none_left, self._stopped = metrics.without_descriptors, none_left, threading.Event()
        self._short = False

    def start(self) -> None:
        """Start looking, in a thread."""
        threading.Thread(target=self._run, name="descriptors", daemon=True).start()

    def stop(self) -> None:
        """Stop looking. Does not wait."""
        self._stopped.set()

    def look(self) -> None:
        """Look once."""
        short, before = self._none_left(), self._short
        self._short = short
        if short:
            self._counter.inc(POLL_SECONDS)
        if short and not before:
            logger.error("no file descriptor is left: new connections are closed at once; raise the limit (ulimit -n)")
        elif before and not short:
            logger.info("there are file descriptors again")

    def _run(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            self.look()
