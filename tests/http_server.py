"""A server in a thread, whose answers a test decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A request; names of header fields in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class _Server(ThreadingHTTPServer):
    """Says nothing of clients that go, and does not wait for their connections."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Tests look at what the client sees."""


@contextmanager
def answering(
    answer: Callable[[Asked], tuple[int, object, dict[str, str]]], written: Callable[[], object] = lambda: None
) -> Iterator[str]:
    """The URL of a server that gives each request the status, content and header fields of `answer`.

    Content is sent as JSON, bytes as they are; `written` is called when an answer has been written.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fields = {name.lower(): value for name, value in self.headers.items()}
            status, content, more = answer(Asked(self.command, self.path, fields, body))
            sent = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {**more, "Content-Length": str(len(sent))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(sent)
            written()

        do_GET = do_POST = do_PUT = do_DELETE = _respond

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
