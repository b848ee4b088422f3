"""`/metrics` for Prometheus, made anew at most once a second for each format."""

from __future__ import annotations

import time
from collections.abc import Callable

from fastapi import FastAPI, Request, Response
from prometheus_client.exposition import choose_encoder

from cerberank_service.http.response_headers import Load
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.state import State

OPEN_METRICS = "application/openmetrics-text"
"""The format that has exemplars, given to whoever accepts it."""


class Exposition:
    """The metrics as bytes. Making them takes milliseconds of the event loop, and anyone may ask."""

    def __init__(
        self,
        metrics: Metrics,
        versions: VersionRegistry,
        load: Callable[[], Load],
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """An exposition is given again for so many `seconds`."""
        self._metrics, self._versions, self._load = metrics, versions, load
        self._seconds, self._clock = seconds, clock
        self._made: dict[str, tuple[float, bytes]] = {}

    def __call__(self, accept: str) -> tuple[bytes, str]:
        """The exposition and its media type, for an `Accept` header."""
        # Two formats and no more: a header can name any version, and each would be made and kept.
        encode, media_type = choose_encoder(f"{OPEN_METRICS}; version=1.0.0" if OPEN_METRICS in accept else "")
        made = self._made.get(media_type)
        now = self._clock()
        if made is None or now - made[0] >= self._seconds:
            load = self._load()
            self._metrics.families.queued_tokens.set(load.queued_tokens)
            self._metrics.families.queued_seconds.set(load.queued_seconds)
            self._metrics.families.ready.set(self._versions.snapshot.state is State.READY)
            made = self._made[media_type] = (now, encode(self._metrics.registry))
        return made[1], media_type


def add_metrics(app: FastAPI, exposition: Exposition) -> None:
    """Add the route to `app`."""

    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        content, media_type = exposition(request.headers.get("accept", ""))
        return Response(content, media_type=media_type)
