"""Prometheus series about versions and labels; the number of label values is bounded, whatever is pushed."""

from __future__ import annotations

from collections.abc import Sequence

from cerberank_models.checkpoint.store.contract import LABELS, Label
from cerberank_service.telemetry.registration import RegisteredSeries
from cerberank_service.telemetry.series import COPY_CAUSES


class LifecycleMetrics:
    """Counts rejected versions and label moves, and reports whether the store can be read."""

    def __init__(self, series: RegisteredSeries, reasons: Sequence[str]) -> None:
        """`reasons` are all possible reasons of a rejection."""
        self._rejected = {reason: series.counter("rejected_versions", reason) for reason in reasons}
        self._copies = {cause: series.counter("copy_failures", cause) for cause in COPY_CAUSES}
        self._flips = {label: series.counter("label_flips", label) for label in LABELS}
        self._reachable = series.gauge("store_reachable")
        self._was_reached = True
        self._reachable.set(1)

    def rejected(self, reason: str) -> None:
        """Count a rejected version. Raises KeyError for an unknown reason."""
        self._rejected[reason].inc()

    def copy_failed(self, cause: str) -> None:
        """Count a copy that failed and will be tried again. Raises KeyError for an unknown cause."""
        self._copies[cause].inc()

    def flipped(self, label: Label) -> None:
        """Count a label move."""
        self._flips[label].inc()

    def reached(self, reached: bool) -> bool:
        """Record whether the store could be read; returns whether that has changed."""
        self._reachable.set(reached)
        changed, self._was_reached = reached != self._was_reached, reached
        return changed
