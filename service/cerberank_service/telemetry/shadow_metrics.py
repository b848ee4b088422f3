"""Prometheus series of mirrored questions, by the shadow's model and version."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from cerberank_service.rollout.comparison import Comparison


class ShadowMetrics:
    """Counts and sums; the means are theirs by `cerberank_shadow_questions_total`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the series."""

        def counter(name: str, help_: str) -> Counter:
            return Counter(f"cerberank_shadow_{name}", help_, ("model", "version"), registry=registry)

        self._questions = counter("questions", "Questions that the shadow was asked as well")
        self._flips = counter("flips", "Mirrored questions where another candidate came first")
        self._overlap = counter("overlap", "Sum of the mirrored questions' rank-biased overlaps")
        self._shift = counter("score_shift", "Sum of the mirrored questions' mean absolute differences of scores")
        self._stable_seconds = counter("stable_seconds", "Compute seconds of the stable version on mirrored questions")
        self._shadow_seconds = counter("seconds", "Compute seconds of the shadow on mirrored questions")
        self._failures = counter("failures", "Questions that the shadow could not answer")
        self._skipped = counter("skipped", "Questions that were not mirrored because the service was busy")
        self.series = (
            *(self._questions, self._flips, self._overlap, self._shift),
            *(self._stable_seconds, self._shadow_seconds, self._failures, self._skipped),
        )

    def for_model(self, model: str, version: str) -> None:
        """Create the series of a version: any may become the shadow."""
        for counter in self.series:
            counter.labels(model, version)

    def compared(
        self, model: str, version: str, comparison: Comparison, *, stable_seconds: float, shadow_seconds: float
    ) -> None:
        """Count one question."""
        for counter, value in (
            (self._questions, 1.0),
            (self._flips, float(comparison.flipped)),
            (self._overlap, comparison.overlap),
            (self._shift, comparison.shift),
            (self._stable_seconds, max(0.0, stable_seconds)),
            (self._shadow_seconds, max(0.0, shadow_seconds)),
        ):
            counter.labels(model, version).inc(value)

    def failed(self, model: str, version: str) -> None:
        """Count a question without an answer."""
        self._failures.labels(model, version).inc()

    def skipped(self, model: str, version: str) -> None:
        """Count a question that was not mirrored."""
        self._skipped.labels(model, version).inc()
