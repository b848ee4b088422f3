"""OpenTelemetry spans: one for each request, in the client's trace (W3C `traceparent`), and one for each of its phases.

This module needs only the OpenTelemetry API, which does nothing without a provider. The extra `otel` installs the SDK,
whose own variables configure export and sampling (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.trace import (
    NoOpTracerProvider,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cerberank_models.output import installed_by
from cerberank_models.ranking.call import RankAnswer
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.settings import SettingsError

PROPAGATOR = TraceContextTextMapPropagator()
MILLISECOND = 1_000_000
"""A millisecond in nanoseconds, which are the unit of spans."""


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """The span of a request in progress."""

    span: Span
    started: int
    """Start time in nanoseconds since 1970."""
    tracer: Tracer

    @property
    def trace_id(self) -> str | None:
        """The trace id; None when the trace is not sampled."""
        return trace_id_of(self.span)

    def answered(self, answer: RankAnswer) -> None:
        """Set the answer's attributes, and add a child span for each phase."""
        if not self.span.is_recording():
            return
        self.span.set_attributes(
            {
                "http.response.status_code": 200,
                "cerberank.model": answer.model,
                "cerberank.version": answer.version,
                "cerberank.drop_schedule": answer.drop_schedule,
                "cerberank.lexical_ratio": answer.lexical_ratio,
                "cerberank.complete": answer.complete,
                "cerberank.candidates": len(answer.scores),
                "cerberank.tokens": answer.tokens,
            }
        )
        start = self.started
        for phase in ("encode", "queue", "compute"):
            end = start + int(getattr(answer.timing, phase) * MILLISECOND)
            child = self.tracer.start_span(phase, context=set_span_in_context(self.span), start_time=start)
            child.end(end)
            start = end

    def failed(self, error: Exception) -> None:
        """Set an error's kind. Its message is left out, because it may quote the request."""
        causes = (each for each in (error, error.__cause__) if isinstance(each, ServiceError))
        kind = next((each.kind for each in causes), Kind.INTERNAL)
        self.span.set_attributes({"http.response.status_code": kind.value, "error.type": kind.label})
        if kind.value >= Kind.INTERNAL.value:
            self.span.set_status(Status(StatusCode.ERROR))


def trace_id_of(span: Span) -> str | None:
    """The trace id of a span in hexadecimal; None when the trace is not sampled."""
    context = span.get_span_context()
    return f"{context.trace_id:032x}" if context.trace_flags.sampled else None


def exemplar() -> dict[str, str] | None:
    """The exemplar for a histogram with the current request's trace id; None when the trace is not sampled."""
    trace_id = trace_id_of(get_current_span())
    return None if trace_id is None else {"trace_id": trace_id}


class Tracing:
    """Creates the spans of one app."""

    def __init__(self, provider: TracerProvider | None) -> None:
        """Without a provider spans are no-ops."""
        self._provider = provider or NoOpTracerProvider()
        self._tracer = self._provider.get_tracer("cerberank")

    def close(self) -> None:
        """Export buffered spans. Only the SDK's provider buffers spans and has `shutdown`."""
        if callable(shutdown := getattr(self._provider, "shutdown", None)):
            shutdown()

    @contextmanager
    def request(self, route: str, headers: Mapping[str, str], request_id: str) -> Iterator[RequestSpan]:
        """The span of a request, which lasts as long as the block."""
        started = time.time_ns()
        with self._tracer.start_as_current_span(
            f"POST {route}",
            context=PROPAGATOR.extract(headers),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": "POST", "http.route": route, "cerberank.request_id": request_id},
            start_time=started,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            handled = RequestSpan(span, started, self._tracer)
            try:
                yield handled
            except Exception as error:  # raised again
                handled.failed(error)
                raise


def open_provider() -> TracerProvider:
    """A provider that exports by OTLP over HTTP, in the background. Raises SettingsError without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk import trace as sdk  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(f"CERBERANK_TRACES='true': needs an extra; {installed_by('otel')}") from error
    resource = Resource.create()  # reads OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = Resource.create({"service.name": "cerberank"})
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
