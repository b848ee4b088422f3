"""The objects that one app owns, and the order in which they start and shut down."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from opentelemetry.trace import TracerProvider

from cerberank_models import __version__
from cerberank_models.backends.device_memory import nvml_memory, nvml_utilisation
from cerberank_models.backends.processors import cgroup_memory
from cerberank_models.checkpoint.store.open_store import open_store
from cerberank_service.access.access import Access
from cerberank_service.certificate import Certificate
from cerberank_service.ranking.golden import GoldenChecks
from cerberank_service.ranking.pipeline import Pipeline
from cerberank_service.ranking.shadow import Shadow
from cerberank_service.ranking.workers import Workers
from cerberank_service.settings import Settings
from cerberank_service.telemetry import series
from cerberank_service.telemetry.logs import dropped_lines
from cerberank_service.telemetry.metrics import Metrics, Sample, Scraped
from cerberank_service.telemetry.series import Series
from cerberank_service.telemetry.tracing import Tracing
from cerberank_service.versions.labels import Labels
from cerberank_service.versions.loading import LiveVersion, Loader
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.single import SingleCheckpoint
from cerberank_service.versions.watcher import Watcher

JOIN_SECONDS = 5.0
"""Seconds to wait at shutdown for a running engine step; a model call that takes longer ends with the process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The load of a replica: accepted questions that are not answered yet."""

    queued_tokens: int
    queued_seconds: float
    """Predicted seconds until all of them are answered."""
    requests_in_flight: int


class Service:
    """The objects of one app, stored by `create_app` in `app.state.service`; the admin app uses the same instance."""

    def __init__(self, settings: Settings, loader: Loader, tracer_provider: TracerProvider | None) -> None:
        """Create the objects; nothing runs before `start`.

        Raises KeysError, StoreError or OSError for an unusable key file or store.
        """
        self.settings = settings
        self.leaving = False
        """True when the process will end soon, so that clients should neither open nor keep connections."""
        self.tracing = Tracing(tracer_provider)
        self.metrics = Metrics()
        offered = self.metrics[series.OFFERED_SECONDS].labels("accepted")
        threads = settings.encode_workers
        self.workers = Workers(
            threads,
            queue_seconds=settings.queue_seconds,
            on_read=lambda seconds: offered.inc(seconds / threads),
        )
        self.poll = threading.Event()
        """Set whenever the watcher should poll the store at once."""
        self.versions = VersionRegistry(settings, on_idle=self.poll.set)
        self.shadow = Shadow(settings, self.versions, self.metrics)
        self.golden = GoldenChecks(self.versions, self.metrics)
        store = open_store(settings.store) if settings.store else None
        self.labels = Labels(store, self.versions, self.poll.set)
        self.source: Watcher | SingleCheckpoint = (
            SingleCheckpoint(settings, self.versions, self.metrics, loader)
            if store is None
            else Watcher(store, self.versions, settings, self.metrics, loader, wake=self.poll)
        )
        self.access = Access(settings.keys_file, self.metrics)
        self.pipeline = Pipeline(settings, self.workers)
        self.certificate: Certificate | None = None
        """The certificate of the public port, to be reported in the metrics."""
        # Read once, because a scrape must work without descriptors.
        self._build = __version__, platform.python_version(), settings.backend, settings.device, settings.precision
        self._memory_limit = cgroup_memory()
        self.metrics.registry.register(Scraped(self._scraped))

    def _scraped(self) -> dict[Series[Any], Iterable[Sample]]:
        """The series that are read at each scrape.

        The GPU is asked by NVML rather than CUDA, so that a scrape neither waits for a busy device nor fails with a
        failed one.
        """
        now, device = self.versions.snapshot, self.settings.device
        live = now.live()
        memory, load = nvml_memory(device), nvml_utilisation(device)
        scraped: dict[Series[Any], Iterable[Sample]] = {
            series.LABELLED_VERSION: [(row, 1.0) for row in now.labels()],
            series.LABEL_WANTED_DIFFERS: [((model, label), float(d)) for model, label, d in now.wanted_labels()],
            series.ENGINE_RUNNING: [(each.reference, float(each.engine.alive)) for each in live],
            series.STALLED_SECONDS: [(each.reference, each.engine.stalled_seconds) for each in live],
            series.CALIBRATED_TOP_SCORE: _calibrated(live, "mean_score"),
            series.CALIBRATED_ANSWERABLE: _calibrated(live, "mean_answerable"),
        }
        if isinstance(self.source, Watcher):
            scraped[series.STORE_POLL_AGE_SECONDS] = [((), self.source.poll_age)]
        scraped |= {
            series.DROPPED_LOG_LINES: [((), float(dropped_lines()))],
            series.BUILD_INFO: [(self._build, 1.0)],
            series.MEMORY_LIMIT_BYTES: _sample(self._memory_limit),
            series.VERSION_INFO: _forms(live, self.settings),
            series.DEVICE_MEMORY_TOTAL_BYTES: _sample(None if memory is None else memory.total),
            series.DEVICE_MEMORY_USED_BYTES: _sample(None if memory is None else memory.total - memory.free),
            series.DEVICE_UTILISATION_RATIO: _sample(load),
        }
        tokens, vectors = self.pipeline.tokens.counts, self.pipeline.vectors.counts
        used = vectors.hits + vectors.misses > 0  # most services have no first stage
        scraped |= {
            series.TOKEN_CACHE_HITS: _sample(tokens.hits),
            series.TOKEN_CACHE_MISSES: _sample(tokens.misses),
            series.TOKEN_CACHE_BYTES: _sample(tokens.size),
            series.VECTOR_CACHE_HITS: _sample(vectors.hits if used else None),
            series.VECTOR_CACHE_MISSES: _sample(vectors.misses if used else None),
            series.VECTOR_CACHE_BYTES: _sample(vectors.size if used else None),
        }
        if self.certificate is not None:
            scraped[series.CERTIFICATE_EXPIRY_TIMESTAMP_SECONDS] = [((), self.certificate.expires)]
            scraped[series.CERTIFICATE_STALE] = [((), float(self.certificate.stale))]
        return scraped

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


def _sample(figure: float | None) -> list[Sample]:
    """The sample of a series without labels; none if the figure is unknown."""
    return [] if figure is None else [((), figure)]


def _calibrated(live: Iterable[LiveVersion], figure: Literal["mean_score", "mean_answerable"]) -> list[Sample]:
    """A figure of the calibration questions, for every calibrated version."""
    calibrations = [(each.reference, each.checkpoint.calibration) for each in live]
    return [(reference, getattr(each, figure)) for reference, each in calibrations if each is not None]


def _forms(live: Iterable[LiveVersion], settings: Settings) -> list[Sample]:
    """The backend and the precision of every loaded version, and the reason, as labels of `VERSION_INFO`."""
    forms = [(each, settings.form(each.checkpoint.manifest.files)) for each in live]
    return [((*each.reference, form.backend, each.precision, form.reason), 1.0) for each, form in forms]
