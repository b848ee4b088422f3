"""Prometheus series about the caches of tokens and of vectors, which count by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cerberank_models.generations import CacheCounts
from cerberank_service.telemetry.series import PREFIX, Series


class CountingCache(Protocol):
    """A cache that counts."""

    @property
    def counts(self) -> CacheCounts:
        """Hits, misses and size."""


class CacheCollector(Collector):
    """Reports the counts of a cache at the time of a scrape."""

    def __init__(self, cache: CountingCache, series: Sequence[Series]) -> None:
        """`cache` is read at every scrape; `series` are those of its hits, misses and bytes, in this order."""
        self._cache, self._series = cache, series

    def collect(self) -> Iterator[Metric]:
        """Yield hits, misses and bytes."""
        counts = self._cache.counts
        for series, value in zip(self._series, (counts.hits, counts.misses, counts.size), strict=True):
            family = CounterMetricFamily if series.kind == "counter" else GaugeMetricFamily
            yield family(PREFIX + series.name, series.help, value=value)
