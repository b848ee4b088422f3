from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from tests.service.fakes import RAISES, FakeBackend, loader
from tests.service.observe import wait_until

from cerberank_service.app import create_app
from cerberank_service.settings import Settings, SettingsError
from cerberank_service.telemetry.tracing import open_provider
from cerberank_service.versions.state import State

TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01"}
BODY = {"question": "q", "candidates": ["a", "b"]}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(exporter: InMemorySpanExporter, tmp_path: Path, no_settings: None) -> Iterator[TestClient]:
    """An app whose spans go into `exporter`."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = create_app(Settings(), loader(FakeBackend(), tmp_path), tracer_provider=provider)
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_until(lambda: app.state.service.versions.snapshot.state is State.READY)
        yield client


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_belongs_to_its_caller_s_trace(traced: TestClient, exporter: InMemorySpanExporter) -> None:
    """W3C context in; a server span below the caller's, and its phases below that, one after the other."""
    answer = traced.post("/v1/rank", json=BODY, headers=TRACEPARENT | {"X-Request-Id": "mine"}).json()
    spans = by_name(exporter)
    assert set(spans) == {"POST /v1/rank", "encode", "queue", "compute"}
    request = spans["POST /v1/rank"]
    assert request.context.trace_id == TRACE
    assert (request.parent.span_id, request.kind) == (PARENT, SpanKind.SERVER)
    assert request.attributes["cerberank.request_id"] == "mine"
    assert request.attributes["cerberank.version"] == answer["version"]
    assert request.attributes["cerberank.drop_schedule"] == (0.0, 0.0)
    ends = [request.start_time]
    for phase in ("encode", "queue", "compute"):
        span = spans[phase]
        assert span.parent.span_id == request.context.span_id
        assert span.start_time == ends[-1]
        assert span.start_time is not None
        assert span.end_time is not None
        assert (span.end_time - span.start_time) / 1e6 == pytest.approx(answer["timing_ms"][phase], abs=0.01)
        ends.append(span.end_time)


def test_without_a_caller_s_trace_one_begins(traced: TestClient, exporter: InMemorySpanExporter) -> None:
    """A malformed `traceparent` is not a trace either; dialects are traced under their own path."""
    traced.post("/v2/rerank", json={"query": "q", "documents": ["a"]}, headers={"traceparent": "00-nonsense"})
    span = by_name(exporter)["POST /v2/rerank"]
    assert span.parent is None
    assert span.context.trace_id != TRACE


@pytest.mark.parametrize(
    ("candidates", "kind", "status"),
    [([3], "invalid", StatusCode.UNSET), ([RAISES], "internal", StatusCode.ERROR)],
)
def test_an_error_is_described_by_its_kind_alone(
    traced: TestClient, exporter: InMemorySpanExporter, candidates: list[Any], kind: str, status: StatusCode
) -> None:
    """A client's own mistake is not a fault of the server's; messages and tracebacks stay out of traces."""
    answer = traced.post("/v1/rank", json={**BODY, "candidates": candidates})
    (span,) = exporter.get_finished_spans()
    assert span.attributes["error.type"] == kind
    assert span.attributes["http.response.status_code"] == answer.status_code
    assert (span.status.status_code, span.events) == (status, ())


def test_histograms_name_a_trace_as_their_example(traced: TestClient) -> None:
    """Exemplars are in the OpenMetrics format, which a scraper requests; the old text format has none."""
    traced.post("/v1/rank", json=BODY, headers=TRACEPARENT)
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
    answer = traced.get("/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    examples = {
        (family.name, sample.exemplar.labels["trace_id"])
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.exemplar is not None
    }
    names = {"cerberank_request_phase_seconds", "cerberank_top_score"}
    assert examples == {(name, f"{TRACE:032x}") for name in names}
    plain = traced.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    assert "trace_id" not in plain.text


def test_the_provider_exports_under_the_service_s_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cerberank`, unless the SDK's own variable says otherwise."""
    for name, expected in (("", "cerberank"), ("ranking-eu", "ranking-eu")):
        monkeypatch.setenv("OTEL_SERVICE_NAME", name)
        provider = open_provider()
        assert isinstance(provider, TracerProvider)
        assert provider.resource.attributes["service.name"] == expected
        provider.shutdown()


def test_without_the_extra_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingsError, match=r"pip install '\.\[otel\]'"):
        open_provider()
