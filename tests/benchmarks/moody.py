"""A real HTTP server in a thread with scripted behaviour, to test clients with."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cerberank_benchmarks.clients.traffic import Traffic

RETRY_AFTER = 1


class Moody(BaseHTTPRequestHandler):
    """Refuses each body for some time after its first arrival, then answers with as many results as it asks for; fails
    for odd numbers.
    """

    protocol_version = "HTTP/1.1"
    seen: dict[bytes, float]
    patience: float

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        count = json.loads(body)["count"]
        before = self.seen.setdefault(body, time.monotonic())
        content, status = b"{}", 503
        if count % 2:
            status = 500
        elif time.monotonic() - before >= self.patience:
            answer = {"results": [{"index": 0}] * count, "usage": {"tokens": 10 * count}}
            content, status = json.dumps(answer).encode(), 200
        self.send_response(status)
        self.send_header("Retry-After", str(RETRY_AFTER))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Be silent."""


@contextmanager
def moody_server(patience: float = RETRY_AFTER) -> Iterator[str]:
    """The URL of a new server, which refuses each body for `patience` seconds."""
    handler = type("Fresh", (Moody,), {"seen": {}, "patience": patience})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def asking(count: int) -> Traffic:
    """Requests for `count` results."""
    return Traffic(shares={count: 1.0}, bodies={count: [json.dumps({"count": count}).encode()]})
