"""The output of the real process: JSON lines on standard error, spans by OTLP to a collector."""

from __future__ import annotations

import json
import os
import resource
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.service.observe import wait_until
from tools.process import Process, serving, start, wait_until_ready

TRACE = "0af7651916cd43dd8448eb211c80319c"
BODY = {"question": "how tall is the tower ?", "candidates": ["330 metres", "a city"]}


@pytest.fixture
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """The URL of a collector, and what it has received."""
    received: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()


def test_lines_are_json_and_spans_reach_the_collector(
    tiny_checkpoint: Path, tmp_path: Path, collector: tuple[str, list[ExportTraceServiceRequest]]
) -> None:
    """From the start to the end of the process: the last spans are sent before it ends."""
    endpoint, received = collector
    service = start(
        tiny_checkpoint,
        tmp_path / "log",
        CERBERANK_LOG_FORMAT="json",
        CERBERANK_TRACES="true",
        OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
        OTEL_EXPORTER_OTLP_COMPRESSION="none",
        OTEL_BSP_SCHEDULE_DELAY="600000",
    )
    try:
        wait_until_ready(service)
        headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "X-Request-Id": "mine"}
        httpx.post(f"{service.url}/v1/rank", json=BODY, headers=headers).raise_for_status()
        assert received == []
        service.terminate()
        assert service.process.wait(timeout=60) == 0
    finally:
        service.process.kill()
        service.process.wait()
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    (answered,) = [line for line in lines if line["message"] == "answered"]
    assert (answered["request_id"], answered["trace_id"], answered["version"]) == ("mine", TRACE, "1")
    wait_until(lambda: received)
    (resource,) = received[0].resource_spans
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    assert {span.name for span in spans} == {"POST /v1/rank", "encode", "queue", "compute"}
    assert {span.trace_id.hex() for span in spans} == {TRACE}


def test_the_log_s_client_is_the_one_that_a_trusted_proxy_names(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The header of any other client is not believed. TMPDIR is a folder that does not exist, which the log says."""
    settings = {"CERBERANK_TRUSTED_PROXIES": "127.0.0.2", "CERBERANK_LOG_FORMAT": "json", "TMPDIR": "/nowhere"}
    with serving(tiny_checkpoint, tmp_path / "log", **settings) as service:
        for source in ("127.0.0.2", "127.0.0.3"):
            with httpx.Client(transport=httpx.HTTPTransport(local_address=source)) as client:
                headers = {"X-Forwarded-For": "192.0.2.7"}
                client.post(f"{service.url}/v1/rank", json=BODY, headers=headers).raise_for_status()
        lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert [line["client"] for line in lines if line["message"] == "answered"] == ["192.0.2.7", "127.0.0.3"]
    assert [line["level"] for line in lines if "TMPDIR=/nowhere" in line["message"]] == ["WARNING"]


def test_a_scrape_needs_no_descriptor(service: Process) -> None:
    """Prometheus, whose connection is open, sees the shortage: the metrics are made anew, and no file is opened."""
    pid = service.process.pid
    with httpx.Client(base_url=service.url, headers={"Accept": "application/openmetrics-text"}) as client:
        client.get("/health/live").raise_for_status()
        _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), most))
        assert "cerberank_build_info{" in client.get("/metrics").raise_for_status().text
