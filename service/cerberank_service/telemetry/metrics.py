"""Prometheus series of one app, in a registry of its own; all of them exist from the start.

Labels are bounded: models and versions are the served ones, stages the model's, kinds and phases fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase

from cerberank_models.backends.contract import Backend
from cerberank_models.config import TunedSchedule
from cerberank_service.call import RankAnswer
from cerberank_service.errors import Kind
from cerberank_service.ranking.slo import label_of
from cerberank_service.telemetry.lifecycle_metrics import LifecycleMetrics
from cerberank_service.telemetry.quality import heads_agree, top_score
from cerberank_service.telemetry.shadow_metrics import ShadowMetrics

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CANDIDATES = (1, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
SCORES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
OTHER = "other"
PHASES = ("encode", "queue", "compute", "total")


class Metrics:
    """Every series, by name; `render` gives the text that Prometheus scrapes."""

    def __init__(self) -> None:
        """Register the series and create those whose labels are known."""
        self.registry = CollectorRegistry()
        self.lifecycle = LifecycleMetrics(self.registry)
        self.shadow = ShadowMetrics(self.registry)
        self._tuned: dict[tuple[str, str], frozenset[str]] = {}
        ProcessCollector(registry=self.registry)
        model = ("model", "version")
        self.phase_seconds = Histogram(
            "cerberank_request_phase_seconds",
            "Latency of answered requests by phase: encode, queue, compute, total",
            ("phase", *model),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.candidates = Histogram(
            "cerberank_request_candidates",
            "Candidates of answered requests",
            model,
            buckets=CANDIDATES,
            registry=self.registry,
        )
        self.requests = self._counter("requests", "Answered requests", ("complete", *model))
        self.schedules = self._counter(
            "schedules", "Answers by drop schedule: the tuned ones, and `other`", ("schedule", *model)
        )
        self.expected_loss = self._counter(
            "expected_loss_points", "Points that the schedules of all answers are expected to cost", ("metric", *model)
        )
        self.tokens = self._counter(
            "tokens", "Tokens run, by stage: those of a dropped candidate up to its exit", ("stage", *model)
        )
        self.padding = self._counter("padding_tokens", "Padding tokens run beside the real ones", model)
        self.dropped = self._counter("dropped_candidates", "Candidates that a stage's exit dropped", ("stage", *model))
        self.steps = self._counter("engine_steps", "Batches run, by stage", ("stage", *model))
        self.step_seconds = self._counter("engine_busy_seconds", "Seconds in batches, by stage", ("stage", *model))
        self.recomputed = self._counter(
            "recomputed_tokens", "Tokens run again, by stage, because their states were given up", ("stage", *model)
        )
        self.wasted = self._counter("wasted_tokens", "Tokens run for questions that got no answer", model)
        self.cancelled = self._counter("cancelled_requests", "Questions dropped because their client had gone", model)
        self.state_bytes = Gauge(
            "cerberank_state_bytes", "Hidden states that wait between steps", model, registry=self.registry
        )
        self.step_limit = Gauge(
            "cerberank_step_tokens", "Tokens that a step may hold: halved when memory ran out", registry=self.registry
        )
        self.queued_seconds = Gauge(
            "cerberank_queued_seconds",
            "Predicted seconds until all accepted requests are answered",
            registry=self.registry,
        )
        self.seconds_per_token = Gauge(
            "cerberank_seconds_per_token",
            "Seconds that a stage takes for a token, as measured",
            ("stage", *model),
            registry=self.registry,
        )
        self.truncated = self._counter("truncated_candidates", "Candidates that were cut to the token limit", model)
        self.duplicates = self._counter("duplicate_candidates", "Candidates answered by an identical one", model)
        self.cached = self._counter("cached_candidates", "Candidates whose scores were known from before", model)
        self.key_requests = self._counter("key_requests", "Requests let in, by the name of their API key", ("key",))
        self.key_tokens = self._counter("key_tokens", "Tokens of their pairs", ("key",))
        self.head_agreement = self._counter(
            "head_agreement",
            "Questions whose heads agree on the first candidate, and those whose do not",
            ("agree", *model),
        )
        self.top_score = Histogram(
            "cerberank_top_score", "Score of the first candidate", model, buckets=SCORES, registry=self.registry
        )
        self.top_score_squares = self._counter(
            "top_score_squares", "Sum of the squares of first candidates' scores, for their deviation", model
        )
        self.errors = self._counter("errors", "Requests answered with an error, by kind", ("kind",))
        self.in_flight = Gauge("cerberank_requests_in_flight", "Requests being handled", registry=self.registry)
        self.queued_tokens = Gauge(
            "cerberank_queued_tokens", "Tokens of accepted, unanswered requests", registry=self.registry
        )
        self.ready = Gauge("cerberank_ready", "1 when the model is ready and serving", registry=self.registry)
        self._of_versions: tuple[MetricWrapperBase, ...] = (
            *(self.phase_seconds, self.candidates, self.requests, self.schedules, self.expected_loss),
            *(self.tokens, self.padding, self.dropped, self.steps, self.step_seconds, self.recomputed),
            *(self.wasted, self.cancelled, self.state_bytes, self.seconds_per_token),
            *(self.truncated, self.duplicates, self.cached),
            *(self.head_agreement, self.top_score, self.top_score_squares),
            *self.shadow.series,
        )
        for kind in Kind:
            self.errors.labels(kind.label)

    def for_model(
        self, model: str, version: str, stages: int, *, padding: int = 0, tuned: Sequence[TunedSchedule] = ()
    ) -> EngineMetrics:
        """Create the series of a model and return what its engine writes to.

        `padding` is what the backend has counted so far, on golden questions and warm-up: no request caused it.
        """
        for phase in PHASES:
            self.phase_seconds.labels(phase, model, version)
        for either in ("true", "false"):
            self.requests.labels(either, model, version)
            self.head_agreement.labels(either, model, version)
        self._tuned[model, version] = frozenset(label_of(entry.schedule) for entry in tuned)
        for schedule in (*self._tuned[model, version], OTHER):
            self.schedules.labels(schedule, model, version)
        for metric in {name for entry in tuned for name in entry.metrics}:
            self.expected_loss.labels(metric, model, version)
        for stage in range(stages):
            for counter in (self.tokens, self.dropped, self.steps, self.step_seconds, self.recomputed):
                counter.labels(str(stage), model, version)
            self.seconds_per_token.labels(str(stage), model, version)
        waste = (self.cached, self.wasted, self.cancelled, self.state_bytes)
        quality = (self.top_score, self.top_score_squares)
        for plain in (self.candidates, self.padding, self.truncated, self.duplicates, *waste, *quality):
            plain.labels(model, version)
        self.shadow.for_model(model, version)
        return EngineMetrics(self, model, version, padding)

    def for_key(self, name: str) -> None:
        """Create the series of an API key."""
        for counter in (self.key_requests, self.key_tokens):
            counter.labels(name)

    def forget(self, model: str, version: str) -> None:
        """Remove a version's series: versions come and go as long as the process lives."""
        self._tuned.pop((model, version), None)
        for series in self._of_versions:
            series.remove_by_labels({"model": model, "version": version})

    def answered(self, answer: RankAnswer, exemplar: Mapping[str, str] | None = None) -> None:
        """Count one answer; `exemplar` names its trace."""
        model = (answer.model, answer.version)
        example = dict(exemplar) if exemplar else None
        for phase in PHASES:
            self.phase_seconds.labels(phase, *model).observe(getattr(answer.timing, phase) / 1000.0, example)
        self.candidates.labels(*model).observe(len(answer.scores))
        self.requests.labels(str(answer.complete).lower(), *model).inc()
        schedule = label_of(answer.drop_schedule)
        self.schedules.labels(schedule if schedule in self._tuned.get(model, ()) else OTHER, *model).inc()
        for metric, points in answer.expected_loss.items():
            self.expected_loss.labels(metric, *model).inc(max(0.0, points))
        self.truncated.labels(*model).inc(int(answer.truncated.sum()))
        if (agree := heads_agree(answer.heads)) is not None:
            self.head_agreement.labels(str(agree).lower(), *model).inc()
        if (score := top_score(answer)) is not None:
            self.top_score.labels(*model).observe(score, example)
            self.top_score_squares.labels(*model).inc(score * score)

    def count_in_flight(self) -> int:
        """Requests being handled."""
        (family,) = self.in_flight.collect()
        return int(family.samples[0].value)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its media type: OpenMetrics, which has exemplars, where the `Accept` header takes it."""
        encode, media_type = choose_encoder(accept)
        return encode(self.registry), media_type

    def _counter(self, name: str, help_: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"cerberank_{name}", help_, labels, registry=self.registry)


class EngineMetrics:
    """What one model's engine counts."""

    def __init__(self, metrics: Metrics, model: str, version: str, padding: int) -> None:
        """Bind the model's labels; `padding` is not counted again."""
        self._metrics, self._model = metrics, (model, version)
        self._padding = padding

    def step(self, stage: int, *, tokens: int, seconds: float, backend: Backend[Any]) -> None:
        """Count one batch, and the padding that the backend has computed since the last one."""
        labels = (str(stage), *self._model)
        self._metrics.steps.labels(*labels).inc()
        self._metrics.tokens.labels(*labels).inc(tokens)
        self._metrics.step_seconds.labels(*labels).inc(max(0.0, seconds))
        padding = backend.padding_tokens
        self._metrics.padding.labels(*self._model).inc(padding - self._padding)
        self._padding = padding

    def recomputed(self, stage: int, tokens: int) -> None:
        """Count tokens that ran again because their states were given up."""
        self._metrics.recomputed.labels(str(stage), *self._model).inc(tokens)

    def held(self, size: int) -> None:
        """State the bytes of waiting hidden states."""
        self._metrics.state_bytes.labels(*self._model).set(size)

    def cancelled(self) -> None:
        """Count a question whose client has gone."""
        self._metrics.cancelled.labels(*self._model).inc()

    def question_done(self, dropped: Iterable[tuple[int, int]], *, wasted: int) -> None:
        """Count what a question's exits dropped, (stage, candidates), and what it ran in vain."""
        for stage, count in dropped:
            self._metrics.dropped.labels(str(stage), *self._model).inc(count)
        self._metrics.wasted.labels(*self._model).inc(wasted)

    def speeds(self, seconds_per_token: Iterable[float], step_tokens: int) -> None:
        """State what was measured, and what a step may hold."""
        for stage, seconds in enumerate(seconds_per_token):
            self._metrics.seconds_per_token.labels(str(stage), *self._model).set(seconds)
        self._metrics.step_limit.set(step_tokens)
