from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cerberank_training.benchmarks.open_loop import Traffic, run_phase

RETRY_AFTER = 1


class Moody(BaseHTTPRequestHandler):
    """Refuses every body once, then answers with as many results as it asks for; breaks for odd numbers."""

    protocol_version = "HTTP/1.1"
    seen: dict[bytes, float]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        count = json.loads(body)["count"]
        before = self.seen.setdefault(body, time.monotonic())
        content, status = b"{}", 503
        if count % 2:
            status = 500
        elif time.monotonic() - before >= RETRY_AFTER:
            content, status = json.dumps({"results": [0] * count}).encode(), 200
        self.send_response(status)
        self.send_header("Retry-After", str(RETRY_AFTER))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture
def url() -> Iterator[str]:
    """A real server in a thread."""
    handler = type("Fresh", (Moody,), {"seen": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def traffic(count: int) -> Traffic:
    return Traffic(shares={count: 1.0}, bodies={count: [json.dumps({"count": count}).encode()]})


def test_refused_clients_come_back_when_they_were_told(url: str) -> None:
    """Every arrival of the beginning is refused once and answered after Retry-After; none is lost."""
    arrivals = asyncio.run(run_phase(url, traffic(4), rate=20, seconds=3.0, seed=0))
    early = [arrival for arrival in arrivals if arrival.refusals]
    assert early
    assert {arrival.fate for arrival in arrivals} == {"answered"}
    assert all(arrival.ended - arrival.seconds >= RETRY_AFTER for arrival in early)


def test_a_client_gives_up_when_the_phase_ends(url: str) -> None:
    """Retry-After beyond the end of the phase is not waited for."""
    arrivals = asyncio.run(run_phase(url, traffic(4), rate=20, seconds=0.5, seed=0))
    assert {arrival.fate for arrival in arrivals} == {"gave up"}
    assert all(arrival.refusals == 1 for arrival in arrivals)


def test_other_errors_are_failures(url: str) -> None:
    """A 500 is neither an answer nor a refusal, and is not tried again."""
    arrivals = asyncio.run(run_phase(url, traffic(3), rate=20, seconds=0.5, seed=0))
    assert {arrival.fate for arrival in arrivals} == {"failed"}


def test_the_same_seed_sends_the_same_requests(url: str) -> None:
    """Arrivals follow from the seed alone, not from the answers."""
    mixed = Traffic(shares={2: 0.5, 3: 0.5}, bodies={2: [b'{"count": 2}'], 3: [b'{"count": 3}']})
    sizes = [
        [arrival.candidates for arrival in asyncio.run(run_phase(url, mixed, rate=50, seconds=0.4, seed=7))]
        for _ in range(2)
    ]
    assert sizes[0] == sizes[1]
    assert set(sizes[0]) == {2, 3}
