"""Series that are read at each scrape: labels, engines, the GPU, and the counts of caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_models.generations import CacheCounts
from cerberank_service.telemetry.series import DEVICE_MEMORY, DEVICE_MEMORY_USED, DEVICE_UTILISATION, PREFIX, Series

Sample = tuple[tuple[str, ...], float]
"""A sample: the values of the series' labels, and the number."""


class ScrapedSeries(Collector):
    """One series with any number of samples."""

    def __init__(self, series: Series, samples: Callable[[], Iterable[Sample]]) -> None:
        """`samples` is called at each scrape, by the thread that renders the metrics."""
        self._series, self._samples = series, samples

    def collect(self) -> Iterator[Metric]:
        """Yield the series with its current samples."""
        yield _family(self._series, self._samples())


class DeviceCollector(Collector):
    """A GPU's memory and load; on a processor, or if they cannot be read, the series have no samples."""

    def __init__(self, memory: Callable[[], DeviceMemory | None], utilisation: Callable[[], float | None]) -> None:
        """Both functions are called at each scrape. They must neither block nor raise, even with a failed device."""
        self._memory, self._utilisation = memory, utilisation

    def collect(self) -> Iterator[Metric]:
        """Yield the series with their current values."""
        memory, utilisation = self._memory(), self._utilisation()
        yield _family(DEVICE_MEMORY, [] if memory is None else [((), memory.total)])
        yield _family(DEVICE_MEMORY_USED, [] if memory is None else [((), memory.total - memory.free)])
        yield _family(DEVICE_UTILISATION, [] if utilisation is None else [((), utilisation)])


def _family(series: Series, samples: Iterable[Sample]) -> Metric:
    made = CounterMetricFamily if series.kind == "counter" else GaugeMetricFamily
    family = made(PREFIX + series.name, series.help, labels=series.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


class CountingCache(Protocol):
    """A cache that counts its hits and misses."""

    @property
    def counts(self) -> CacheCounts:
        """Hits, misses and size."""


class CacheCollector(Collector):
    """Reports the counts of a cache at each scrape."""

    def __init__(self, cache: CountingCache, series: Sequence[Series], *, on_use: bool = False) -> None:
        """`cache` is read at every scrape; `series` are for its hits, misses and bytes, in this order.

        With `on_use` there are no samples before the first use.
        """
        self._cache, self._series, self._on_use = cache, series, on_use

    def collect(self) -> Iterator[Metric]:
        """Yield hits, misses and bytes."""
        counts = self._cache.counts
        shown = not self._on_use or counts.hits + counts.misses > 0
        for series, value in zip(self._series, (counts.hits, counts.misses, counts.size), strict=True):
            yield _family(series, [((), value)] if shown else [])
