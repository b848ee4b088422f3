"""A real uvicorn with bounded connections, asked over sockets; more kinds are in tests/e2e/hostile.py."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.service.observe import wait_until

from cerberank_service.protocol import LINGER_BYTES, MOST_AHEAD, bounded

HEAD_BYTES = 2000
LARGE_BYTES = 2_000_000
"""Of an answer: more than the system takes of one that nobody reads."""


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


def test_pipelined_requests_are_answered_in_order() -> None:
    """Many small heads in one piece are not one large head."""
    paths = [f"/{number:02}" for number in range(MOST_AHEAD)]
    with connected() as connection:
        connection.sendall(b"".join(map(request, paths)) + request("/zz", "Connection: close"))
        found = read_all(connection)
    assert found.count(b"HTTP/1.1 200") == MOST_AHEAD + 1
    places = [found.index(b"\r\n\r\n" + path[-2:].encode()) for path in [*paths, "/zz"]]
    assert places == sorted(places)


def test_a_connection_ends_with_the_answers_before_too_many_requests() -> None:
    """However many thousand are in one piece; those that were let in are answered, and the last answer says it."""
    with connected() as connection:
        connection.sendall(request("/aa") * 10_000)
        found = read_all(connection)
        assert found.count(b"HTTP/1.1 200") == found.count(b"\r\n\r\naa") == MOST_AHEAD + 1
        assert found.count(b"connection: close") == 1
        assert found.rindex(b"connection: close") > found.rindex(b"HTTP/1.1 200")


def test_a_client_that_does_not_read_gets_no_further_answer_made() -> None:
    """And all of them, in order, once it reads."""
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
