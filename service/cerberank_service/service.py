"""What one app owns, and the order in which it starts and ends."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

from opentelemetry.trace import TracerProvider

from cerberank_models.checkpoint.store.open import open_store
from cerberank_service.access.access import Access
from cerberank_service.admin.operations import Operations
from cerberank_service.http.body import Bodies
from cerberank_service.http.large_bodies import LargeBodies
from cerberank_service.http.response_headers import Load
from cerberank_service.ranking.rank import Ranking
from cerberank_service.ranking.workers import Workers
from cerberank_service.rollout.labels import Labels
from cerberank_service.rollout.rules import Rules
from cerberank_service.rollout.shadow import Shadow
from cerberank_service.settings import PRODUCTION, Limits, Settings
from cerberank_service.telemetry.lifecycle_metrics import LabelCollector
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.tracing import Tracing
from cerberank_service.versions.loading import Loader
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.rejection import Reason
from cerberank_service.versions.single import SingleCheckpoint
from cerberank_service.versions.watcher import Watcher

JOIN_SECONDS = 5.0
"""For the step that is running; a model that hangs longer than that dies with the process."""


class Service:
    """Made by `create_app`, found at `app.state.service`; the admin port's app works on the same one."""

    def __init__(
        self,
        settings: Settings,
        loader: Loader,
        tracer_provider: TracerProvider | None,
        limits: Limits = PRODUCTION,
    ) -> None:
        """Nothing runs before `start`. Raises KeysError, StoreError or OSError for what the settings name in vain."""
        self.settings = settings
        self.tracing = Tracing(tracer_provider)
        self.metrics = Metrics(reasons=[reason.value for reason in Reason])
        self.workers = Workers(settings.encode_workers)
        look = threading.Event()  # set whenever the store's watcher should look at once
        self.versions = VersionRegistry(settings, on_idle=look.set)
        self.metrics.registry.register(LabelCollector(self.versions.labels))
        self.shadow = Shadow(settings, self.versions, self.metrics)
        store = open_store(settings.store) if settings.store else None
        self.labels = Labels(store, self.versions, look.set)
        self.operations = Operations(self.versions, self.labels, look.set)
        self.rules = Rules(settings, self.versions, self.shadow, self.labels)
        self.source: Watcher | SingleCheckpoint = (
            SingleCheckpoint(settings, self.versions, self.metrics, loader)
            if store is None
            else Watcher(store, self.versions, settings, self.metrics, loader, wake=look, after_turn=self.rules.apply)
        )
        self.access = Access(settings.keys_file, self.metrics)
        self.bodies = Bodies(
            limit=settings.max_body_bytes,
            seconds=limits.client_seconds,
            together=settings.max_bodies_bytes,
            busy=self.versions.answering,
        )
        self.large_bodies = LargeBodies(together=settings.max_bodies_bytes)
        self.ranking = Ranking(settings)
        self._stopping = False

    def start(self) -> None:
        """Begin to load, or to follow the store."""
        self.source.start()
        self.shadow.start()

    def begin_shutdown(self) -> None:
        """Refuse new requests; those being handled may still take the drain time. Called on the event loop."""
        if not self._stopping:
            self._stopping = True
            self.versions.refuse()
            asyncio.get_running_loop().call_later(self.settings.drain_seconds, self.versions.stop)

    def load(self) -> Load:
        """What is accepted and not answered, now."""
        engines = [live.engine for live in self.versions.snapshot.live()]
        return Load(
            queued_tokens=sum(engine.queued_tokens for engine in engines),
            queued_seconds=sum(engine.queued_seconds for engine in engines),
            requests_in_flight=self.metrics.count_in_flight(),
        )

    async def end_shutdown(self) -> None:
        """Nobody waits any more: end the threads."""
        self.versions.stop()
        self.shadow.stop()
        await self.workers.run(self.source.stop)
        await self.workers.run(partial(self.versions.join, JOIN_SECONDS))
        self.workers.close()
        self.large_bodies.close()
