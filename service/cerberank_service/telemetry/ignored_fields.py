"""Tells operators of fields that clients of other services send and that have no effect here."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from cerberank_service.telemetry.logs import FIELDS
from cerberank_service.telemetry.registration import RegisteredSeries

logger = logging.getLogger(__name__)

MOST_NAMES = 200
"""Names are a client's text: after so many different ones in a dialect nothing more of it is logged."""
LONGEST_NAME = 64


class IgnoredFields:
    """Counts ignored fields by dialect, and logs each name once in a dialect."""

    def __init__(self, series: RegisteredSeries) -> None:
        """Nothing has been seen yet."""
        self._series, self._logged = series, dict[str, set[str]]()

    def create(self, dialects: Sequence[str]) -> None:
        """Create the series of these dialects, at zero."""
        self._series.create(dialect=sorted(set(dialects)))

    def saw(self, dialect: str, names: Iterable[str]) -> None:
        """Count the fields of one request; `dialect` is one of the service's, `names` may be any text."""
        logged = self._logged.setdefault(dialect, set())
        for name in names:
            self._series.counter("ignored_fields", dialect).inc()
            seen = name[:LONGEST_NAME]
            if seen not in logged and len(logged) < MOST_NAMES:
                logged.add(seen)
                logger.warning(
                    "a field of other services has no effect here", extra={FIELDS: {"dialect": dialect, "field": seen}}
                )
