"""Logs questions that are refused for load: one line at once, then a line a minute with their number."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from cerberank_service.errors import Refusal
from cerberank_service.telemetry.logs import FIELDS

logger = logging.getLogger(__name__)

SECONDS = 60.0
"""Seconds between two lines."""
OWN_REASONS = ("deadline",)
"""Reasons of refusals that have another cause than the load: each has its line."""


def _later(seconds: float, then: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, then)


class RefusalLog:
    """The refusals since the last line. Used by one event loop only."""

    def __init__(self, later: Callable[[float, Callable[[], None]], None] = _later) -> None:
        """`later` calls a function after some seconds."""
        self._later, self._waiting = later, False
        self._counts: Counter[str] = Counter()

    def level_of(self, refusal: Refusal) -> int:
        """The level of the line of this refusal, which is counted if others have been logged within a minute."""
        if refusal.reason in OWN_REASONS:
            return logging.INFO
        if not self._waiting:
            self._wait()
            return logging.WARNING
        self._counts[refusal.reason] += 1
        return logging.DEBUG

    def _wait(self) -> None:
        self._waiting = True
        self._later(SECONDS, self._tell)

    def _tell(self) -> None:
        """Log the number of refusals of the last minute; without any, the next one is logged at once again."""
        self._waiting = False
        if self._counts:
            fields = {"refused": self._counts.total(), **self._counts}
            logger.warning("questions were refused within %g seconds", SECONDS, extra={FIELDS: fields})
            self._counts.clear()
            self._wait()
