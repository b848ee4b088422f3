"""Uvicorn's HTTP/1.1 protocol with limits on the size of heads and trailers, on pipelined requests, on slow clients,
and on the work done for clients that do not read their answers.

Uvicorn's own parser accepts heads of any size and has no time-out for them. Bodies are limited by `body`.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

LINGER_BYTES = 1024 * 1024
"""Bytes of a body that are read after its response, such as 401, was sent: closing earlier could reset the connection
before the client has read the response."""

MOST_PIPELINED = 16
"""Pipelined requests that may wait on a connection. A client may send thousands in one piece, whose heads would all be
parsed before any other connection is served.
"""

LINGER_SECONDS = 2.0
"""Lingering close after too many pipelined requests: closing at once, with unread requests, would reset the connection
and lose responses that are not delivered yet.
"""

UNSENT_BYTES = 128 * 1024
"""Unsent bytes of responses that the kernel buffers for a connection (TCP_NOTSENT_LOWAT). By default it buffers
megabytes, and a client that sends questions without reading would have that many answers computed for nothing. A slow
client must read this many bytes in `client_seconds`.
"""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `bounded` creates the subclass that is passed to uvicorn."""

    most_head_bytes = 0
    client_seconds = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time-out of the first head."""
        super().connection_made(transport)
        _bound_unsent(transport)
        self._in_message = self._next_waits = self._overrun = False
        self._unanswered: list[RequestResponseCycle] = []
        self._head_bytes = self._late_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel both timers and notify every request of the connection; uvicorn notifies only the last one."""
        self._stop_waiting()
        self.resume_writing()
        self._disconnect()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse in pieces of at most the head's limit, and nothing after too many pipelined requests."""
        in_body = self._in_message and self._head_timer is None
        most = len(data) if in_body else self.most_head_bytes
        for begin in range(0, len(data), most):
            if not self._overrun and not self.transport.is_closing():
                self._feed(data[begin : begin + most])

    def _feed(self, data: bytes) -> None:
        """Parse, and count the bytes of an unfinished head, except for the piece in which it began."""
        if not self._in_message:
            self._await_head()
        waiting = self._head_timer
        super().data_received(data)
        if waiting is not None and waiting is self._head_timer:
            self._head_bytes += len(data)
            if self._head_bytes > self.most_head_bytes:
                self._refuse()

    def on_message_begin(self) -> None:
        """Start the time-out of a request's head."""
        super().on_message_begin()
        self._in_message, self._late_bytes = True, 0
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Accept a header field; trailers, which are ignored, count towards the head's size."""
        if self._head_timer is not None:
            super().on_header(name, value)
            return
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self.most_head_bytes:
            self.transport.close()

    def on_headers_complete(self) -> None:
        """Pass the request on, unless its head is too large, too many requests wait, or the connection is closing."""
        self._stop_waiting()
        if len(self.pipeline) == MOST_PIPELINED:
            self._overrun = True
            raise OverflowError("too many requests wait on this connection")
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.most_head_bytes:
            self._refuse()
        if not self.transport.is_closing():
            super().on_headers_complete()
            self._unanswered = [cycle for cycle in self._unanswered if not cycle.response_complete] + [self.cycle]

    def send_400_response(self, msg: str) -> None:
        """Reject malformed HTTP; but after too many pipelined requests, send pending responses before closing."""
        if not self._overrun:
            super().send_400_response(msg)

    def on_body(self, body: bytes) -> None:
        """Pass the body on; after the response was sent, discard up to `LINGER_BYTES` and then close."""
        if self.transport.is_closing():
            return
        super().on_body(body)
        if self.cycle.response_complete:
            self._late_bytes += len(body)
            if self._late_bytes > LINGER_BYTES:
                self.transport.close()

    def on_message_complete(self) -> None:
        """The body is complete."""
        self._in_message = False
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the next pipelined request, unless the client leaves responses unread."""
        self._next_waits = self.flow.write_paused and bool(self.pipeline)
        if self._next_waits:
            return
        super().on_response_complete()
        if self._overrun and self.cycle.response_complete and not self.transport.is_closing():
            self._linger()

    def pause_writing(self) -> None:
        """The client does not read: start a time-out, which is renewed as long as the client makes progress."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """The client reads again: cancel the time-out and start the next pipelined request."""
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if self._next_waits:
            self.on_response_complete()

    def _await_reader(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(self.client_seconds, self._check_reader)

    def _check_reader(self) -> None:
        read = self._unread_bytes - self.transport.get_write_buffer_size()
        if read < min(UNSENT_BYTES, self._unread_bytes // 2):
            self._abandon()
        else:
            self._await_reader()

    def _linger(self) -> None:
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _abandon(self) -> None:
        self._disconnect()
        self.transport.abort()

    def _disconnect(self) -> None:
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._unanswered = []

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(self.client_seconds, self._on_head_timeout)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        self._head_timer = None
        self.transport.close()

    def _refuse(self) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # else it would be read as the pending response
            body = b"the request's head is too large"
            head = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
            self.transport.write(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        self.transport.close()


def _bound_unsent(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        with suppress(OSError):  # not a TCP socket
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def bounded(most_head_bytes: int, client_seconds: float) -> type[BoundedProtocol]:
    """A protocol class with these limits, for uvicorn, which creates the connections itself."""
    bounds: dict[str, Any] = {"most_head_bytes": most_head_bytes, "client_seconds": client_seconds}
    return type("Protocol", (BoundedProtocol,), bounds)
