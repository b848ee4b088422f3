"""A real uvicorn with bounded connections, asked over sockets; more kinds are in tests/e2e/hostile.py."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.service.observe import wait_until
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cerberank_service.http.protocol import LINGER_BYTES, MOST_PIPELINED, bounded

HEAD_BYTES = 2000
LARGE_BYTES = 2_000_000
"""Size of an answer: more than the system takes of one that nobody reads."""


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path, without reading a body."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": scope["path"][-2:].encode()})


@contextmanager
def connected(client_seconds: float = 20.0, app: ASGIApp = echo) -> Iterator[socket.socket]:
    """A connection to a server of `app`."""
    protocol = bounded(HEAD_BYTES, client_seconds)
    config = uvicorn.Config(app, port=0, http=protocol, lifespan="off", log_config=None, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        with socket.create_connection(server.servers[0].sockets[0].getsockname(), timeout=20) as connection:
            yield connection
    finally:
        server.should_exit = True
        thread.join()


def read_all(connection: socket.socket) -> bytes:
    """Until the server closes."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def request(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: test", *headers, "", ""]).encode()


def test_a_head_within_the_bound_passes_and_one_beyond_it_does_not() -> None:
    """However it is cut into pieces; the answer before is given."""
    with connected() as connection:
        connection.sendall(request("/aa", "X: " + "x" * (HEAD_BYTES - 100)))
        assert connection.recv(65536).endswith(b"aa")
        large = request("/bb", "X: " + "x" * HEAD_BYTES)
        connection.sendall(large[:HEAD_BYTES])
        connection.sendall(large[HEAD_BYTES:])
        assert read_all(connection).startswith(b"HTTP/1.1 431 ")


SOME_BYTES = 30_000
"""Size of an answer: several fit into what the system takes."""


def test_pipelined_requests_are_answered_in_order() -> None:
    """Many small heads in one piece are not one large head."""
    paths = [f"/{number:02}" for number in range(MOST_PIPELINED)]
    with connected() as connection:
        connection.sendall(b"".join(map(request, paths)) + request("/zz", "Connection: close"))
        found = read_all(connection)
    assert found.count(b"HTTP/1.1 200") == MOST_PIPELINED + 1
    places = [found.index(b"\r\n\r\n" + path[-2:].encode()) for path in [*paths, "/zz"]]
    assert places == sorted(places)


def test_a_connection_ends_with_the_answers_before_too_many_requests() -> None:
    """Accepted requests are answered, even if the client sends thousands at once and continues to send."""

    async def some(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.01)
        size = str(SOME_BYTES).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
        await send({"type": "http.response.body", "body": b"a" * SOME_BYTES})

    found = b""
    with connected(app=some) as connection:
        connection.sendall(request("/aa") * 10_000)
        thread = threading.Thread(target=_send_on, args=(connection,))
        thread.start()
        with suppress(ConnectionResetError):
            while piece := connection.recv(20_000):
                found += piece
                time.sleep(0.02)
        thread.join()
    assert found.count(b"HTTP/1.1 200") == MOST_PIPELINED + 1
    assert found.count(b"a" * SOME_BYTES) == MOST_PIPELINED + 1


def _send_on(connection: socket.socket) -> None:
    with suppress(OSError):
        for _ in range(100):
            connection.sendall(request("/bb") * 100)
            time.sleep(0.02)


@pytest.mark.parametrize("first", [b"", b"1\r\na\r\n"])
def test_trailers_count_as_a_part_of_the_head(first: bytes) -> None:
    """Nobody reads them, and without a bound they fill the memory; a few do no harm."""
    head = request("/aa", "Transfer-Encoding: chunked").replace(b"GET", b"POST") + first + b"0\r\n"
    with connected() as connection:
        connection.sendall(head + b"X: few\r\n\r\n" + request("/bb", "Connection: close"))
        assert read_all(connection).count(b"HTTP/1.1 200") == 2
    with connected() as connection:
        connection.sendall(head)
        with pytest.raises(ConnectionError):
            _send_trailers(connection)


def _send_trailers(connection: socket.socket) -> None:
    for _ in range(1000):
        connection.sendall(b"X: many\r\n" * (HEAD_BYTES // 10))
        time.sleep(0.001)


def test_a_head_far_beyond_the_bound_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come in one piece with tens of thousands of fields."""
    fields: list[bytes] = []

    def count(self: HttpToolsProtocol, name: bytes, value: bytes) -> None:
        fields.append(name)

    monkeypatch.setattr(HttpToolsProtocol, "on_header", count)
    with connected() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 30_000)
        assert read_all(connection).startswith(b"HTTP/1.1 431 ")
    assert 0 < len(fields) < 3 * HEAD_BYTES // len(b"X: a\r\n")


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_slow_reader_has_its_time_as_long_as_it_goes_on(goes_on: bool) -> None:
    """Several times what one that stops gets."""

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        size = str(LARGE_BYTES).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
        await send({"type": "http.response.body", "body": b"a" * LARGE_BYTES})

    found = 0
    with connected(client_seconds=0.3, app=large) as connection, suppress(ConnectionResetError):
        connection.sendall(request("/aa", "Connection: close"))
        if not goes_on:
            time.sleep(1.0)
        while piece := connection.recv(65536):
            found += len(piece)
            time.sleep(0.03)
    assert (found > LARGE_BYTES) == goes_on


def test_a_client_that_does_not_read_gets_no_further_answer_made() -> None:
    """No further answer is computed while the client does not read; once it reads, all arrive in order."""
    begun: list[str] = []

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])
        size = str(LARGE_BYTES).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
        await send({"type": "http.response.body", "body": scope["path"][-2:].encode() * (LARGE_BYTES // 2)})

    paths = [f"/{number:02}" for number in range(10)]
    with connected(app=large) as connection:
        connection.sendall(b"".join(map(request, paths)) + request("/zz", "Connection: close"))
        wait_until(lambda: bool(begun))
        time.sleep(0.3)
        assert begun == ["/00"]
        found = read_all(connection)
    assert begun == [*paths, "/zz"]
    places = [found.index(path[-2:].encode() * (LARGE_BYTES // 2)) for path in begun]
    assert places == sorted(places)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"\r\n", request("/aa") + b"GET"])
def test_a_client_that_does_not_finish_a_head_is_left(sent: bytes) -> None:
    """After its time, whatever it has sent before."""
    with connected(client_seconds=0.2) as connection:
        connection.sendall(sent)
        assert read_all(connection).count(b"HTTP/1.1 ") == sent.count(b"/aa")


def test_a_body_that_comes_after_its_answer_is_read_up_to_a_bound() -> None:
    """So that a client that sends first and reads later sees the answer; not for ever."""
    head = request("/aa", f"Content-Length: {100 * LINGER_BYTES}")
    with connected() as connection:
        connection.sendall(head)
        assert connection.recv(65536).endswith(b"aa")
        with pytest.raises(ConnectionError):
            _send_pieces(connection, 99)


def _send_pieces(connection: socket.socket, count: int) -> None:
    for _ in range(count):
        connection.sendall(b"x" * LINGER_BYTES)
