"""Registers the declared series in a Prometheus registry, and creates and removes their children by label values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cerberank_service.telemetry.series import FIXED, PREFIX, SERIES, Series


class RegisteredSeries:
    """All series of the table. Methods raise KeyError for an unknown name and ValueError for wrong labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register every series of the table."""
        self._registered = {series.name: _register(series, registry) for series in SERIES}

    def counter(self, name: str, *values: str) -> Counter:
        """The counter `name`, or its child for `values`, in the order of its labels."""
        found = self._registered[name]
        assert isinstance(found, Counter), name
        return found.labels(*values) if values else found

    def gauge(self, name: str, *values: str) -> Gauge:
        """The gauge `name`, or its child for `values`."""
        found = self._registered[name]
        assert isinstance(found, Gauge), name
        return found.labels(*values) if values else found

    def histogram(self, name: str, *values: str) -> Histogram:
        """The histogram `name`, or its child for `values`."""
        found = self._registered[name]
        assert isinstance(found, Histogram), name
        return found.labels(*values) if values else found

    def create(self, **known: Sequence[str]) -> None:
        """Create, at zero, the children of every series whose labels are all in `known` or fixed.

        Existing children keep their values.
        """
        values = {**FIXED, **known}
        for series in SERIES:
            if series.labels and values.keys() >= set(series.labels):
                for child in product(*(values[label] for label in series.labels)):
                    self._registered[series.name].labels(*child)

    def remove(self, **values: str) -> None:
        """Remove every child that has these label values."""
        for series in SERIES:
            if values.keys() <= set(series.labels):
                self._registered[series.name].remove_by_labels(values)


def _register(series: Series, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name = PREFIX + series.name
    match series.kind:
        case "counter":
            return Counter(name, series.help, series.labels, registry=registry)
        case "gauge":
            return Gauge(name, series.help, series.labels, registry=registry)
        case "histogram":
            return Histogram(name, series.help, series.labels, buckets=series.buckets, registry=registry)
