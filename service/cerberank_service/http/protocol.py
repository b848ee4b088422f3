"""HTTP/1.1 as uvicorn speaks it, with bounds: how large a request's head and trailers may be, how many requests may be
sent ahead, how long a client may dawdle, and how much is done for one that does not read.

Uvicorn's own parser takes heads of any size and waits for them for ever. Bodies are bounded by `body`.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

LINGER_BYTES = 1024 * 1024
"""Of a body that came too late for its answer, such as 401: read, so that the client gets to see the answer."""

MOST_AHEAD = 16
"""Requests that wait for an answer before theirs. A client may send thousands in one piece, whose heads would all be
read before anybody else's turn.
"""

LINGER_SECONDS = 2.0
"""After the last answer to one that sends too many: closed at once, with its requests unread, the connection would be
reset, and answers on their way be lost.
"""

UNSENT_BYTES = 128 * 1024
"""Of an answer that the system takes ahead of what the client reads. It would take megabytes, and a client that sends
questions without reading would have that much computed for nobody; what is on its way is not bounded by this. A slow
reader has to take as much in `client_seconds`.
"""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `bounded` makes the class that uvicorn is given."""

    most_head_bytes = 0
    client_seconds = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head."""
        super().connection_made(transport)
        _bound_unsent(transport)
        self._in_message = self._next_waits = self._overrun = False
        self._unanswered: list[RequestResponseCycle] = []
        self._head_bytes = self._late_bytes = 0
        self._head_clock: asyncio.TimerHandle | None = None
        self._read_clock: asyncio.TimerHandle | None = None
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop both clocks, and tell every request of the connection; uvicorn tells the last one alone."""
        self._stop_waiting()
        self.resume_writing()
        self._disconnect()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; not far beyond what heads may hold, and nothing after too many requests."""
        in_body = self._in_message and self._head_clock is None
        most = len(data) if in_body else self.most_head_bytes
        for begin in range(0, len(data), most):
            if not self._overrun and not self.transport.is_closing():
                self._feed(data[begin : begin + most])

    def _feed(self, data: bytes) -> None:
        """Count what belongs to an unfinished head, but for the bytes that it began in."""
        if not self._in_message:
            self._await_head()
        waiting = self._head_clock
        super().data_received(data)
        if waiting is not None and waiting is self._head_clock:
            self._head_bytes += len(data)
            if self._head_bytes > self.most_head_bytes:
                self._refuse()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_message, self._late_bytes = True, 0
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field; trailers, which come after the head and which nobody reads, count as a part of it."""
        if self._head_clock is not None:
            super().on_header(name, value)
            return
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self.most_head_bytes:
            self.transport.close()

    def on_headers_complete(self) -> None:
        """Hand the request over, unless its head is too large or another one's was, or too many wait before it."""
        self._stop_waiting()
        if len(self.pipeline) == MOST_AHEAD:
            self._overrun = True
            raise OverflowError("too many requests wait on this connection")
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.most_head_bytes:
            self._refuse()
        if not self.transport.is_closing():
            super().on_headers_complete()
            self._unanswered = [cycle for cycle in self._unanswered if not cycle.response_complete] + [self.cycle]

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; after too many requests the connection ends with the last answer that is due."""
        if not self._overrun:
            super().send_400_response(msg)

    def on_body(self, body: bytes) -> None:
        """Read late bytes up to a bound."""
        if self.transport.is_closing():
            return
        super().on_body(body)
        if self.cycle.response_complete:
            self._late_bytes += len(body)
            if self._late_bytes > LINGER_BYTES:
                self.transport.close()

    def on_message_complete(self) -> None:
        """The body is whole."""
        self._in_message = False
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Begin with the connection's next request, if it sent one ahead, but not while it leaves answers unread."""
        self._next_waits = self.flow.write_paused and bool(self.pipeline)
        if self._next_waits:
            return
        super().on_response_complete()
        if self._overrun and self.cycle.response_complete and not self.transport.is_closing():
            self._linger()

    def pause_writing(self) -> None:
        """The client does not read: give it some time, and again as long as it goes on."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self._read_clock is not None:
            self._read_clock.cancel()
            self._read_clock = None
        if self._next_waits:
            self.on_response_complete()

    def _await_reader(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._read_clock = self.loop.call_later(self.client_seconds, self._look_at_reader)

    def _look_at_reader(self) -> None:
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
        if self._head_clock is None:
            self._head_bytes = 0
            self._head_clock = self.loop.call_later(self.client_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_clock is not None:
            self._head_clock.cancel()
            self._head_clock = None

    def _give_up(self) -> None:
        self._head_clock = None
        self.transport.close()

    def _refuse(self) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # else it would be taken for that one's answer
            body = b"the request's head is too large"
            head = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
            self.transport.write(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        self.transport.close()


def _bound_unsent(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        with suppress(OSError):  # no TCP
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def bounded(most_head_bytes: int, client_seconds: float) -> type[BoundedProtocol]:
    """The protocol class with these bounds: uvicorn makes the connections itself."""
    bounds: dict[str, Any] = {"most_head_bytes": most_head_bytes, "client_seconds": client_seconds}
    return type("Protocol", (BoundedProtocol,), bounds)
