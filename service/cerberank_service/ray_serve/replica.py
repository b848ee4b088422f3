"""The app as a Ray Serve deployment: each replica is the complete service, with its own engine, in a Ray actor.

Settings come from the environment. deploy/ray/cerberank.yaml refers to `application`. Ray starts replicas, routes
requests to them, and restarts a replica when it or its engine fails. Needs the extra `ray-serve`.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

import ray
from fastapi import FastAPI
from ray import serve

from cerberank_service.http.connections import ChangesHeaders, without_header
from cerberank_service.ray_serve.autoscaling import OFFERED_UTILISATION, OfferedRate
from cerberank_service.serve import assemble
from cerberank_service.service import Service
from cerberank_service.settings import Settings, read_settings
from cerberank_service.versions.state import State

POLL_SECONDS = 0.05
OFFERED_SECONDS = "cerberank_offered_seconds_total"
"""The counter in /metrics of the questions' predicted compute seconds, by outcome (accepted or refused)."""


class Cerberank:
    """One replica. Ray defines the names of its methods."""

    def __init__(self) -> None:
        """Assemble the app. Ray runs its lifespan, which starts loading the model."""
        self._app = assemble(_with_threads(read_settings()))
        self._service: Service = self._app.state.service
        self._rate = OfferedRate(time.monotonic())

    def __serve_build_asgi_app__(self) -> FastAPI:
        """The app that answers the requests; of another type, Ray would not know its routes.

        Ray puts an id into each request, which the service uses, and adds it to the answer itself.
        """
        self._app.add_middleware(ChangesHeaders, change=partial(without_header, name=b"x-request-id"))
        return self._app

    async def check_health(self) -> None:
        """Wait until the model is loaded; Ray sends no requests before. Raises RuntimeError if loading has failed."""
        while (state := self._service.versions.snapshot.state) is State.LOADING:
            await asyncio.sleep(POLL_SECONDS)
        if state is State.FAILED:
            raise RuntimeError(self._service.versions.snapshot.reason or "the model's thread has failed")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """The metric that `OfferedSecondsPolicy` uses."""
        counted = self._service.metrics.registry.restricted_registry([OFFERED_SECONDS]).collect()
        offered = sum(sample.value for family in counted for sample in family.samples)
        return {OFFERED_UTILISATION: self._rate.report(offered, time.monotonic())}


def _with_threads(settings: Settings) -> Settings:
    """Use as many threads as Ray has assigned processors, unless the settings state a number of threads."""
    assigned = ray.get_runtime_context().get_assigned_resources().get("CPU", 0.0)
    return settings.model_copy(update={"threads": settings.threads or max(1, int(assigned))})


application = serve.deployment(serve.ingress()(Cerberank)).bind()
