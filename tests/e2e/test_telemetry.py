"""The output of the real process: JSON lines on standard error, spans by OTLP to a collector."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.http_server import Asked, answering
from tests.service.observe import wait_until
from tools.process import Process, serving

Collector = tuple[str, list[ExportTraceServiceRequest]]
TRACE = "0af7651916cd43dd8448eb211c80319c"
BODY = {"question": "how tall is the tower ?", "candidates": ["330 metres", "a city"]}


@pytest.fixture
def collector() -> Iterator[Collector]:
    """The URL of a collector, and what it has received."""
    received: list[ExportTraceServiceRequest] = []

    def receive(asked: Asked) -> tuple[int, object, dict[str, str]]:
        received.append(ExportTraceServiceRequest.FromString(asked.body))
        return 200, b"", {}

    with answering(receive) as url:
        yield url, received


@pytest.fixture
def service(tiny_checkpoint: Path, tmp_path: Path, collector: Collector) -> Iterator[Process]:
    """A service that logs JSON, believes one proxy, and sends its spans when it ends."""
    endpoint, _ = collector
    settings = {
        "CERBERANK_LOG_FORMAT": "json",
        "CERBERANK_TRUSTED_PROXIES": "127.0.0.2",
        "CERBERANK_TRACES": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_BSP_SCHEDULE_DELAY": "600000",
        "TMPDIR": "/nowhere",
    }
    with serving(tiny_checkpoint, tmp_path / "log", **settings) as running:
        yield running


def test_lines_are_json_and_spans_reach_the_collector(service: Process, collector: Collector) -> None:
    """From the start to the end of the process: the last spans are sent before it ends.

    The log's client is what a trusted proxy names; the header of any other client is not believed. TMPDIR is a folder
    that does not exist, which the log says.
    """
    _, received = collector
    for source in ("127.0.0.2", "127.0.0.3"):
        with httpx.Client(transport=httpx.HTTPTransport(local_address=source)) as client:
            headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "X-Request-Id": "mine"}
            headers["X-Forwarded-For"] = "192.0.2.7"
            client.post(f"{service.url}/v1/rank", json=BODY, headers=headers).raise_for_status()
    assert received == []
    service.terminate()
    assert service.process.wait(timeout=60) == 0
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    answered = [line for line in lines if line["message"] == "answered"]
    assert [line["client"] for line in answered] == ["192.0.2.7", "127.0.0.3"]
    assert {(line["request_id"], line["trace_id"], line["version"]) for line in answered} == {("mine", TRACE, "1")}
    assert [line["level"] for line in lines if "TMPDIR=/nowhere" in line["message"]] == ["WARNING"]
    wait_until(lambda: received)
    (resource,) = received[0].resource_spans
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    assert {span.name for span in spans} == {"POST /v1/rank", "encode", "queue", "compute"}
    assert {span.trace_id.hex() for span in spans} == {TRACE}


def test_a_scrape_needs_no_descriptor(shared_service: Process) -> None:
    """Prometheus, whose connection is open, sees the shortage: the metrics are made anew, and no file is opened."""
    pid = shared_service.process.pid
    with httpx.Client(base_url=shared_service.url, headers={"Accept": "application/openmetrics-text"}) as client:
        client.get("/health/live").raise_for_status()
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), before[1]))
        try:
            assert "cerberank_build_info{" in client.get("/metrics").raise_for_status().text
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
