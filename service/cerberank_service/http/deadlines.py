"""The deadline of an answer: the body's `deadline_ms` or the header `X-Request-Timeout-Ms`, whichever is earlier."""

from __future__ import annotations

from math import isfinite

from cerberank_service.errors import Kind, ServiceError

HEADER = "X-Request-Timeout-Ms"
"""A request header for clients of dialects without a deadline field, and for proxies with a time-out."""


def read_header(value: str | None) -> float | None:
    """The header's value in milliseconds. Raises ServiceError (422) for anything but a positive number.

    >>> read_header(None), read_header("250")
    (None, 250.0)
    """
    if value is None:
        return None
    try:
        milliseconds = float(value)
    except ValueError:
        milliseconds = float("nan")
    if not isfinite(milliseconds) or milliseconds <= 0:
        raise ServiceError(Kind.INVALID, f"{HEADER}: must be a positive number of milliseconds")
    return milliseconds


def due(started: float, *milliseconds: float | None) -> float | None:
    """The earliest deadline, in seconds on the clock of `started`; None if all of `milliseconds` are None.

    >>> due(10.0, None, 500.0, 2000.0), due(10.0, None)
    (10.5, None)
    """
    given = [each for each in milliseconds if each is not None]
    return started + min(given) / 1000.0 if given else None
