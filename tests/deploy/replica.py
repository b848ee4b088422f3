"""A replica as the proxy sees it: a server that answers everything alike and keeps its requests."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from tests.http_server import Asked, answering


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

    def respond(self, asked: Asked) -> tuple[int, object, dict[str, str]]:
        """The answer to any request, once it does not hang."""
        self.requests.append((asked.path, asked.headers, len(asked.body)))
        if self.hang is not None:
            self.hang.wait()
        return self.status, self.answer, self.headers


def listening(replica: Replica) -> AbstractContextManager[str]:
    """Serves a replica while the block lasts; gives its URL."""
    return answering(replica.respond, replica.done.set)
