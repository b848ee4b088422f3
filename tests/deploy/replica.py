"""A replica as the proxy sees it: a server that answers everything alike and keeps its requests."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Replica:
    """A server that answers everything with one status, and its requests."""

    status: int = 200
    answer: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str], int]] = field(default_factory=list)
    """Path, header fields in lower case, bytes of the body."""
    hang: threading.Event | None = None
    done: threading.Event = field(default_factory=threading.Event)
    """Set when an answer has been written."""
    url: str = ""


class Server(ThreadingHTTPServer):
    """Says nothing of clients that go."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Tests look at what the client sees."""


class listening:
    """Serves a replica while the block lasts; gives its URL."""

    def __init__(self, replica: Replica) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fields = {name.lower(): value for name, value in self.headers.items()}
                replica.requests.append((self.path, fields, len(body)))
                if replica.hang is not None:
                    replica.hang.wait()
                self.send_response(replica.status)
                for name, value in {**replica.headers, "Content-Length": str(len(replica.answer))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(replica.answer)
                replica.done.set()

            do_GET = do_POST = _answer

            def log_message(self, format: str, *arguments: object) -> None: ...

        self._server = Server(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, args=(0.01,)).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
