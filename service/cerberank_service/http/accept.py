"""The first steps of a ranking request: limits, API key, body and deadline; and the watch for a client that is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import isfinite
from typing import TypeVar

from starlette.requests import Request

from cerberank_service.access.access import Caller
from cerberank_service.errors import Kind, Refusal, ServiceError
from cerberank_service.http.body import Bodies, Body
from cerberank_service.service import Service
from cerberank_service.telemetry.series import REQUESTS_IN_FLIGHT

TIMEOUT = "X-Request-Timeout-Ms"
"""A request header for clients of dialects without a deadline field, and for proxies with a time-out."""
CALIBRATED = "X-Calibrated-Scores"
"""A request header that replaces the setting `calibrated_scores`, for dialects without a field for it."""
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptedRequest:
    """A request whose body was received; its questions are answered even if the replica drains meanwhile."""

    body: Body
    caller: Caller | None
    share: str
    """The owner of its share of the workers: its API key, or else its client's address."""
    size: int
    """Bytes of the body."""
    received: float
    """Time at which the body was complete, in seconds on the monotonic clock."""
    latest: float | None
    """The deadline that the header states, on the same clock."""
    calibrated: bool
    """True if dialects that report raw scores shall report calibrated ones."""


@asynccontextmanager
async def accept(service: Service, bodies: Bodies, request: Request) -> AsyncIterator[AcceptedRequest]:
    """Check a request in the order of what a check costs, and receive its body; it is in progress until the block ends.

    Raises ServiceError if a limit, the key, the key's quota, the header or the body refuses it.
    """
    if service.metrics.count_in_flight() >= service.settings.max_requests:
        text = "too many requests are in progress"
        raise ServiceError(Kind.UNAVAILABLE, text, retry_after=1, refusal=Refusal("connections"))
    caller = service.access.caller(request.scope["headers"])
    share = "" if request.client is None else request.client.host
    if caller is not None:
        request.state.key = caller.key.name
        share = caller.key.sha256
        caller.enter()
    timeout_ms = read_timeout(request.headers.get(TIMEOUT))
    calibrated = read_calibrated(request.headers.get(CALIBRATED), default=service.settings.calibrated_scores)
    with service.metrics[REQUESTS_IN_FLIGHT].track_inprogress():
        async with bodies.received(request) as body:
            service.versions.check_serving()
            received = time.monotonic()
            yield AcceptedRequest(
                body=body,
                caller=caller,
                share=share,
                size=len(body.content),
                received=received,
                latest=None if timeout_ms is None else received + timeout_ms / 1000.0,
                calibrated=calibrated,
            )


def read_timeout(header: str | None) -> float | None:
    """The header's value in milliseconds. Raises ServiceError (422) for anything but a positive number.

    >>> read_timeout(None), read_timeout("250")
    (None, 250.0)
    """
    if header is None:
        return None
    try:
        milliseconds = float(header)
    except ValueError:
        milliseconds = float("nan")
    if not isfinite(milliseconds) or milliseconds <= 0:
        raise ServiceError(Kind.INVALID, f"{TIMEOUT}: must be a positive number of milliseconds")
    return milliseconds


def read_calibrated(header: str | None, *, default: bool) -> bool:
    """The header's value, or the default without one. Raises ServiceError (422) unless it is `true` or `false`.

    >>> read_calibrated("TRUE", default=False), read_calibrated(None, default=True)
    (True, True)
    """
    values = {None: default, "true": True, "false": False}
    if (value := header if header is None else header.strip().lower()) not in values:
        raise ServiceError(Kind.INVALID, f"{CALIBRATED}: must be true or false")
    return values[value]


async def unless_disconnected(request: Request, work: Awaitable[ResultT]) -> ResultT | None:
    """Await `work`; returns None and cancels it when the client disconnects first.

    The body must have been received completely: this function consumes the connection's messages.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)
        del task, watch, each  # an error's traceback references this frame; the variables would close a cycle


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
