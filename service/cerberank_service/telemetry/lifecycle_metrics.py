"""Prometheus series of what becomes of pushed versions; their labels are bounded, whatever is pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cerberank_models.checkpoint.store.contract import LABELS, Label
from cerberank_service.versions.rejection import Reason


class LabelCollector(Collector):
    """What each label means at the moment of a scrape."""

    def __init__(self, labelled: Callable[[], Iterable[tuple[str, Label, str]]]) -> None:
        """`labelled` gives model, label and version of every label that is set."""
        self._labelled = labelled

    def collect(self) -> Iterator[Metric]:
        """One sample for a label that is set."""
        names = ("model", "label", "version")
        family = GaugeMetricFamily("cerberank_labelled_version", "1 for the version that a label means", labels=names)
        for row in self._labelled():
            family.add_metric(row, 1.0)
        yield family


class LifecycleMetrics:
    """Rejected versions, moved labels, and whether the store can be read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create every series."""
        self._rejected = Counter(
            "cerberank_rejected_versions", "Versions that failed a check, by reason", ("reason",), registry=registry
        )
        self._flips = Counter("cerberank_label_flips", "Labels that moved", ("label",), registry=registry)
        self._reachable = Gauge("cerberank_store_reachable", "1 when the store could be read", registry=registry)
        self._was_reached = True
        self._reachable.set(1)
        for reason in Reason:
            self._rejected.labels(reason.value)
        for label in LABELS:
            self._flips.labels(label)

    def rejected(self, reason: Reason) -> None:
        """Count a version that cannot serve."""
        self._rejected.labels(reason.value).inc()

    def flipped(self, label: Label) -> None:
        """Count a label that moved."""
        self._flips.labels(label).inc()

    def reached(self, reached: bool) -> bool:
        """State whether the store could be read; returns whether that is news."""
        self._reachable.set(reached)
        news, self._was_reached = reached != self._was_reached, reached
        return news
