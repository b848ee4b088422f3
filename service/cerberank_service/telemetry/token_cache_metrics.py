"""Prometheus series about the token cache, which counts by itself."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cerberank_models.token_cache import TokenCache
from cerberank_service.telemetry.series import PREFIX, TOKEN_CACHE


class TokenCacheCollector(Collector):
    """Reports the counts of a token cache at the time of a scrape."""

    def __init__(self, cache: TokenCache) -> None:
        """`cache` is read at every scrape."""
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        """Yield hits, misses and bytes, in the order of `TOKEN_CACHE`."""
        counts = self._cache.counts
        for series, value in zip(TOKEN_CACHE, (counts.hits, counts.misses, counts.size), strict=True):
            family = CounterMetricFamily if series.kind == "counter" else GaugeMetricFamily
            yield family(PREFIX + series.name, series.help, value=value)
