"""The objects that one app owns, and the order in which they start and shut down."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

from opentelemetry.trace import TracerProvider

from cerberank_models import __version__
from cerberank_models.backends.device_memory import nvml_memory, nvml_utilisation
from cerberank_models.backends.processors import cgroup_memory
from cerberank_models.checkpoint.store.open_store import open_store
from cerberank_service.access.access import Access
from cerberank_service.admin.operations import Operations
from cerberank_service.http.body import Bodies
from cerberank_service.http.certificate import Certificate
from cerberank_service.http.response_headers import Load
from cerberank_service.ranking.golden import GoldenChecks
from cerberank_service.ranking.rank import Ranking
from cerberank_service.ranking.shadow import Shadow
from cerberank_service.ranking.workers import Workers
from cerberank_service.settings import Settings
from cerberank_service.settings.fields import PRODUCTION, Limits
from cerberank_service.telemetry.collectors import CacheCollector, DeviceCollector, Sample, ScrapedSeries
from cerberank_service.telemetry.logs import dropped_lines
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.series import (
    BUILD_INFO,
    CALIBRATED_ANSWERABLE,
    CALIBRATED_TOP_SCORE,
    CERTIFICATE_EXPIRY,
    CERTIFICATE_STALE,
    DROPPED_LOG_LINES,
    ENGINE_RUNNING,
    LABEL_DIFFERS,
    LABELLED_VERSION,
    MEMORY_LIMIT,
    STALLED_SECONDS,
    STORE_POLL_AGE,
    TOKEN_CACHE,
    VECTOR_CACHE,
    VERSION_INFO,
    Series,
)
from cerberank_service.telemetry.tracing import Tracing
from cerberank_service.versions.labels import Labels
from cerberank_service.versions.loading import Loader
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.single import SingleCheckpoint
from cerberank_service.versions.state import Snapshot
from cerberank_service.versions.watcher import Watcher

JOIN_SECONDS = 5.0
"""Seconds to wait at shutdown for a running engine step; a model call that takes longer ends with the process."""


class Service:
    """The objects of one app, stored by `create_app` in `app.state.service`; the admin app uses the same instance."""

    def __init__(
        self,
        settings: Settings,
        loader: Loader,
        tracer_provider: TracerProvider | None,
        limits: Limits = PRODUCTION,
    ) -> None:
        """Create the objects; nothing runs before `start`.

        Raises KeysError, StoreError or OSError for an unusable key file or store.
        """
        self.settings = settings
        self.leaving = False
        """True when the process will end soon, so that clients should neither open nor keep connections."""
        self.tracing = Tracing(tracer_provider)
        self.metrics = Metrics()
        offered = self.metrics.families.offered_seconds.labels("accepted")
        threads = settings.encode_workers
        self.workers = Workers(
            threads,
            queue_seconds=settings.queue_seconds,
            on_read=lambda seconds: offered.inc(seconds / threads),
        )
        poll = threading.Event()  # set whenever the watcher should poll the store at once
        self.versions = VersionRegistry(settings, on_idle=poll.set)
        self.shadow = Shadow(settings, self.versions, self.metrics)
        self.golden = GoldenChecks(self.versions, self.metrics)
        store = open_store(settings.store) if settings.store else None
        self.labels = Labels(store, self.versions, poll.set)
        self.operations = Operations(self.versions, self.labels, poll.set)
        self.source: Watcher | SingleCheckpoint = (
            SingleCheckpoint(settings, self.versions, self.metrics, loader)
            if store is None
            else Watcher(store, self.versions, settings, self.metrics, loader, wake=poll)
        )
        self._register_scraped()
        self.access = Access(settings.keys_file, self.metrics)
        self.bodies = Bodies(
            limit=settings.max_body_bytes,
            seconds=limits.client_seconds,
            total_bytes=settings.max_bodies_bytes,
        )
        self.ranking = Ranking(settings, self.workers)
        self.metrics.registry.register(CacheCollector(self.ranking.tokens, TOKEN_CACHE))
        self.metrics.registry.register(CacheCollector(self.ranking.vectors, VECTOR_CACHE, on_use=True))

    def _register_scraped(self) -> None:
        source, device = self.source, self.settings.device

        def scraped(series: Series, samples: Callable[[], Iterable[Sample]]) -> None:
            self.metrics.registry.register(ScrapedSeries(series, samples))

        def now() -> Snapshot:
            return self.versions.snapshot

        scraped(LABELLED_VERSION, lambda: [(row, 1.0) for row in now().labels()])
        scraped(LABEL_DIFFERS, lambda: [((m, label), float(d)) for m, label, d in now().wanted_labels()])
        scraped(ENGINE_RUNNING, lambda: [(each.reference, float(each.engine.alive)) for each in now().live()])
        scraped(STALLED_SECONDS, lambda: [(each.reference, each.engine.stalled_seconds) for each in now().live()])
        scraped(CALIBRATED_TOP_SCORE, lambda: _calibrated(now(), "mean_score"))
        scraped(CALIBRATED_ANSWERABLE, lambda: _calibrated(now(), "mean_answerable"))
        if isinstance(source, Watcher):
            scraped(STORE_POLL_AGE, lambda: [((), source.poll_age)])
        scraped(DROPPED_LOG_LINES, lambda: [((), float(dropped_lines()))])
        # Read once, because a scrape must work without descriptors.
        build, limit = _build(self.settings), cgroup_memory()
        scraped(BUILD_INFO, lambda: [(build, 1.0)])
        scraped(MEMORY_LIMIT, lambda: [] if limit is None else [((), float(limit))])
        scraped(VERSION_INFO, lambda: _forms(now(), self.settings))
        # NVML is used instead of CUDA, so that a scrape neither waits for a busy device nor fails with a failed one.
        load = DeviceCollector(partial(nvml_memory, device), partial(nvml_utilisation, device))
        self.metrics.registry.register(load)

    def report_certificate(self, certificate: Certificate) -> None:
        """Report the certificate of the public port in the metrics."""
        self.metrics.registry.register(ScrapedSeries(CERTIFICATE_EXPIRY, lambda: [((), certificate.expires)]))
        self.metrics.registry.register(ScrapedSeries(CERTIFICATE_STALE, lambda: [((), float(certificate.stale))]))

    def open(self, unusable: Callable[[Exception], None]) -> None:
        """Prepare `start`, so that it cannot fail. Raises OSError when no folder for local copies can be created.

        `unusable` is called, with an error that says what to do, if a single checkpoint turns out to be unusable.
        """
        if isinstance(self.source, Watcher):
            self.source.open()
        else:
            self.source.open(unusable)

    def start(self) -> None:
        """Start the workers, load the checkpoint or follow the store, and mirror to shadow versions.

        Raises RuntimeError if the system has too few threads.
        """
        self.workers.start()
        self.source.start()
        self.shadow.start()
        self.golden.start()

    def leave(self) -> None:
        """Become not ready, so that load balancers send requests elsewhere; requests are still accepted."""
        self.leaving = True
        self.versions.leave()

    def refuse(self) -> None:
        """Refuse new requests; requests in progress are still answered."""
        self.versions.refuse()

    def load(self) -> Load:
        """The current load: accepted questions that are not answered yet."""
        engines = [live.engine for live in self.versions.snapshot.live()]
        return Load(
            queued_tokens=sum(engine.queued_tokens for engine in engines),
            queued_seconds=sum(engine.queued_seconds for engine in engines),
            requests_in_flight=self.metrics.count_in_flight(),
        )

    async def end_shutdown(self) -> None:
        """End the threads, after all requests are answered."""
        self.versions.stop()
        self.shadow.stop()
        self.golden.stop()
        await self.workers.run(self.source.stop)
        await self.workers.run(partial(self.versions.join, JOIN_SECONDS))
        self.workers.close()


def _calibrated(snapshot: Snapshot, figure: Literal["mean_score", "mean_answerable"]) -> list[Sample]:
    """A figure of the calibration questions, for every calibrated version."""
    known = [(each.reference, each.checkpoint.calibration) for each in snapshot.live()]
    return [(reference, getattr(calibration, figure)) for reference, calibration in known if calibration is not None]


def _forms(snapshot: Snapshot, settings: Settings) -> list[Sample]:
    """The backend and the precision of every loaded version, and the reason, as labels of `VERSION_INFO`."""
    forms = [(each, settings.form(each.checkpoint.manifest.files)) for each in snapshot.live()]
    return [((*each.reference, form.backend, each.precision, form.reason), 1.0) for each, form in forms]


def _build(settings: Settings) -> tuple[str, ...]:
    """The labels of `BUILD_INFO`."""
    return __version__, platform.python_version(), settings.backend, settings.device, settings.precision
