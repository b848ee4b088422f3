"""The Prometheus series of one app, in its own registry; all of them exist from the start.

Label values are bounded: models and versions are those that are served, stages those of the model, kinds and phases
are fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector

from cerberank_models.backends.contract import BackendCounts
from cerberank_models.config import TunedSchedule
from cerberank_service.call import RankAnswer
from cerberank_service.errors import PREDICTED, REFUSALS, Refusal
from cerberank_service.telemetry.answer_metrics import NO_VECTORS, OTHER, AnswerMetrics, label_of
from cerberank_service.telemetry.ignored_fields import IgnoredFields
from cerberank_service.telemetry.lifecycle_metrics import LifecycleMetrics
from cerberank_service.telemetry.registration import RegisteredSeries
from cerberank_service.telemetry.series import OUTCOMES
from cerberank_service.telemetry.shadow_metrics import ShadowMetrics


class Metrics:
    """The series of one app; `registry` holds them for the page that Prometheus scrapes."""

    def __init__(self, reasons: Sequence[str] = ()) -> None:
        """Register the series and create those with known label values; `reasons` are those of rejected versions."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.series = RegisteredSeries(self.registry)
        self.series.create()
        self.lifecycle = LifecycleMetrics(self.series, reasons)
        self.shadow = ShadowMetrics(self.series)
        self.ignored = IgnoredFields(self.series)
        self.errors = self.series.counter("errors")
        self._refused = {reason: self.series.counter("refused_requests", reason) for reason in REFUSALS}
        self._refused_candidates = {reason: self.series.counter("refused_candidates", reason) for reason in REFUSALS}
        self._refused_seconds = {reason: self.series.histogram("refused_queue_seconds", reason) for reason in PREDICTED}
        self.in_flight = self.series.gauge("requests_in_flight")
        self.queued_tokens = self.series.gauge("queued_tokens")
        self.queued_seconds = self.series.gauge("queued_seconds")
        self.ready = self.series.gauge("ready")
        self.key_requests = self.series.counter("key_requests")
        self.key_tokens = self.series.counter("key_tokens")
        self.keys_stale = self.series.gauge("keys_stale")
        self._answers: dict[tuple[str, str], AnswerMetrics] = {}

    def for_model(
        self,
        model: str,
        version: str,
        stages: int,
        *,
        counts: BackendCounts | None = None,
        tuned: Sequence[TunedSchedule] = (),
    ) -> EngineMetrics:
        """Create the series of a version and return those of its engine.

        `counts` is what the backend has done so far, for golden questions and warm-up, which is not counted.
        """
        schedules = tuple(dict.fromkeys([*(label_of(entry.schedule) for entry in tuned), OTHER]))
        metrics = tuple(dict.fromkeys(name for entry in tuned for name in entry.metrics))
        self.series.create(
            model=[model],
            version=[version],
            stage=[str(stage) for stage in range(stages)],
            schedule=schedules,
            metric=metrics,
        )
        self._answers[model, version] = AnswerMetrics(self.series, model, version, schedules=schedules, metrics=metrics)
        return EngineMetrics(self.series, model, version, stages, counts or BackendCounts())

    def for_key(self, key: str) -> None:
        """Create the series of an API key, by its id."""
        self.series.create(key=[key])

    def forget(self, model: str, version: str) -> None:
        """Remove a version's series when it is unloaded."""
        self._answers.pop((model, version), None)
        self.series.remove(model=model, version=version)

    def answered(
        self,
        answer: RankAnswer,
        exemplar: Mapping[str, str] | None = None,
        *,
        duplicates: int = 0,
        vectors: Mapping[str, int] = NO_VECTORS,
    ) -> None:
        """See `AnswerMetrics.answered`; an answer of a version that was unloaded meanwhile is not counted."""
        counting = self._answers.get((answer.model, answer.version))
        if counting is not None:
            counting.answered(answer, exemplar, duplicates=duplicates, vectors=vectors)

    def refused(self, refusal: Refusal) -> None:
        """Count a question that was refused with 503."""
        self._refused[refusal.reason].inc()
        if refusal.candidates is not None:
            self._refused_candidates[refusal.reason].inc(refusal.candidates)
        if refusal.seconds is not None:
            self._refused_seconds[refusal.reason].observe(refusal.seconds)

    def count_in_flight(self) -> int:
        """Number of requests in progress."""
        (family,) = self.in_flight.collect()
        return int(family.samples[0].value)


class EngineMetrics:
    """The series of one version's engine."""

    def __init__(self, series: RegisteredSeries, model: str, version: str, stages: int, counts: BackendCounts) -> None:
        """Get the version's child of each series, in lists by stage; `counts` are the backend's so far."""
        of, by_stage = (model, version), [str(stage) for stage in range(stages)]
        self._steps = [series.counter("engine_steps", stage, *of) for stage in by_stage]
        self._tokens = [series.counter("tokens", stage, *of) for stage in by_stage]
        self._busy_seconds = [series.counter("engine_busy_seconds", stage, *of) for stage in by_stage]
        self._recomputed = [series.counter("recomputed_tokens", stage, *of) for stage in by_stage]
        self._dropped = [series.counter("dropped_candidates", stage, *of) for stage in by_stage]
        self._seconds_per_token = [series.gauge("seconds_per_token", stage, *of) for stage in by_stage]
        self._fixed_seconds = [series.gauge("fixed_step_seconds", stage, *of) for stage in by_stage]
        self._padding_tokens = series.counter("padding_tokens", *of)
        self._state_bytes = series.gauge("state_bytes", *of)
        self._out_of_memory = series.counter("out_of_memory", *of)
        self._cancelled = series.counter("cancelled_requests", *of)
        self._failed = series.counter("failed_questions", *of)
        self._wasted = series.counter("wasted_tokens", *of)
        self._step_tokens = series.gauge("step_tokens")
        self._offered = {outcome: series.counter("offered_seconds", outcome) for outcome in OUTCOMES}
        self._graph_hits = series.counter("graph_hits", *of)
        self._graph_misses = series.counter("graph_misses", *of)
        self._counts = counts

    def step(self, stage: int, *, tokens: int, seconds: float, counts: BackendCounts) -> None:
        """Count one batch, and what the backend has done since the last one; `counts` are its sums."""
        self._steps[stage].inc()
        self._tokens[stage].inc(tokens)
        self._busy_seconds[stage].inc(max(0.0, seconds))
        self._padding_tokens.inc(counts.padding_tokens - self._counts.padding_tokens)
        self._graph_hits.inc(counts.graph_hits - self._counts.graph_hits)
        self._graph_misses.inc(counts.graph_misses - self._counts.graph_misses)
        self._counts = counts

    def offered(self, seconds: float, *, accepted: bool) -> None:
        """Count the predicted compute of a question that was accepted or refused."""
        self._offered["accepted" if accepted else "refused"].inc(seconds)

    def recomputed(self, stage: int, tokens: int) -> None:
        """Count tokens that were recomputed because their states were evicted."""
        self._recomputed[stage].inc(tokens)

    def held(self, size: int) -> None:
        """Set the bytes of waiting hidden states."""
        self._state_bytes.set(size)

    def out_of_memory(self) -> None:
        """Count a batch that did not fit into memory."""
        self._out_of_memory.inc()

    def failed(self) -> None:
        """Count a question that ended in an internal error."""
        self._failed.inc()

    def cancelled(self) -> None:
        """Count a question whose client has disconnected."""
        self._cancelled.inc()

    def question_done(self, dropped: Iterable[tuple[int, int]], *, wasted: int) -> None:
        """Count a question's dropped candidates, as (stage, candidates), and its tokens if it got no answer."""
        for stage, count in dropped:
            self._dropped[stage].inc(count)
        self._wasted.inc(wasted)

    def speeds(self, seconds_per_token: Iterable[float], fixed_seconds: Iterable[float], step_tokens: int) -> None:
        """Set the measured seconds per token, and per step, of each stage, and the step limit in tokens."""
        for gauge, seconds in zip(self._seconds_per_token, seconds_per_token, strict=True):
            gauge.set(seconds)
        for gauge, seconds in zip(self._fixed_seconds, fixed_seconds, strict=True):
            gauge.set(seconds)
        self._step_tokens.set(step_tokens)
