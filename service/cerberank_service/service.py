"""What one app owns, and the order in which it starts and ends."""

from __future__ import annotations

import asyncio
from functools import partial

from opentelemetry.trace import TracerProvider

from cerberank_models.checkpoint.store.open import open_store
from cerberank_service.access.access import Access
from cerberank_service.access.operations import Operations
from cerberank_service.http.body import Bodies
from cerberank_service.http.response_headers import Load
from cerberank_service.ranking.ranking import Ranking
from cerberank_service.ranking.workers import Workers
from cerberank_service.rollout.labels import Labels
from cerberank_service.rollout.rules import Rules
from cerberank_service.rollout.shadow import Shadow
from cerberank_service.settings import Settings
from cerberank_service.telemetry.lifecycle_metrics import LabelCollector
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.tracing import Tracing
from cerberank_service.versions.loading import Loader
from cerberank_service.versions.registry import ServedModels
from cerberank_service.versions.single import SingleCheckpoint
from cerberank_service.versions.watcher import Watcher

JOIN_SECONDS = 5.0
"""For the step that is running; a model that hangs longer than that dies with the process."""


class Service:
    """Made by `create_app`, found at `app.state.service`; the admin port's app works on the same one."""

    def __init__(self, settings: Settings, loader: Loader, tracer_provider: TracerProvider | None) -> None:
        """Nothing runs before `start`. Raises KeysError, StoreError or OSError for what the settings name in vain."""
        self.settings = settings
        self.tracing = Tracing(tracer_provider)
        self.metrics = Metrics()
        self.workers = Workers(settings.encode_workers)
        self.served = ServedModels(settings)
        self.metrics.registry.register(LabelCollector(self.served.snapshot))
        self.shadow = Shadow(settings, self.served, self.metrics)
        store = open_store(settings.store) if settings.store else None
        self.source: Watcher | SingleCheckpoint = (
            SingleCheckpoint(settings, self.served, self.metrics, loader)
            if store is None
            else Watcher(store, self.served, settings, self.metrics, loader)
        )
        self.labels = Labels(store, self.served, self.source.wake)
        self.operations = Operations(self.served, self.labels, self.source.wake)
        self.rules = Rules(settings, self.served, self.shadow, self.labels)
        self.source.after_turn = self.rules.apply
        self.access = Access(settings.keys_file, self.metrics)
        self.bodies = Bodies(
            limit=settings.max_body_bytes,
            seconds=settings.client_seconds,
            together=settings.max_bodies_bytes,
            busy=self.served.answering,
        )
        self.ranking = Ranking(settings, self.served, self.shadow, self.workers, self.metrics)
        self._stopping = False

    def start(self) -> None:
        """Begin to load, or to follow the store."""
        self.source.start()
        self.shadow.start()

    def begin_shutdown(self) -> None:
        """Refuse new requests; those being handled may still take the drain time. Called on the event loop."""
        if not self._stopping:
            self._stopping = True
            self.served.refuse()
            asyncio.get_running_loop().call_later(self.settings.drain_seconds, self.served.stop)

    def load(self) -> Load:
        """What is accepted and not answered, now."""
        engines = [live.engine for live in self.served.live()]
        return Load(
            queued_tokens=sum(engine.queued_tokens for engine in engines),
            queued_seconds=sum(engine.queued_seconds for engine in engines),
            requests_in_flight=self.metrics.count_in_flight(),
        )

    async def end_shutdown(self) -> None:
        """Nobody waits any more: end the threads."""
        self.served.stop()
        self.shadow.stop()
        await self.workers.run(self.source.stop)
        await self.workers.run(partial(self.served.join, JOIN_SECONDS))
        self.workers.close()
        self.ranking.close()
