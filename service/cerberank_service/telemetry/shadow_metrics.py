"""The Prometheus series about mirrored questions, by the shadow's model and version."""

from __future__ import annotations

from cerberank_service.telemetry.registration import RegisteredSeries


class ShadowMetrics:
    """Counts and sums; divided by `cerberank_shadow_questions_total` the sums give means."""

    def __init__(self, series: RegisteredSeries) -> None:
        """The children exist for every loaded version, because any of them may become the shadow."""
        self._series = series

    def compared(
        self,
        model: str,
        version: str,
        *,
        flipped: bool,
        overlap: float,
        shift: float,
        stable_seconds: float,
        shadow_seconds: float,
    ) -> None:
        """Count one question: whether another candidate came first, the overlap (0..1), the shift of the scores."""
        for name, value in (
            ("shadow_questions", 1.0),
            ("shadow_flips", float(flipped)),
            ("shadow_overlap", overlap),
            ("shadow_score_shift", shift),
            ("shadow_stable_seconds", max(0.0, stable_seconds)),
            ("shadow_seconds", max(0.0, shadow_seconds)),
        ):
            self._series.counter(name, model, version).inc(value)

    def failed(self, model: str, version: str) -> None:
        """Count a question that the shadow did not answer."""
        self._series.counter("shadow_failures", model, version).inc()

    def skipped(self, model: str, version: str) -> None:
        """Count a question that was not mirrored."""
        self._series.counter("shadow_skipped", model, version).inc()
