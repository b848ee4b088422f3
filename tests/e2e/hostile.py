"""Requests that nobody sends by mistake: what goes over the wire, and the statuses that may come back.

`python -m tests.e2e.hostile URL` makes them, says that it is ready, waits for a line, sends them one after the other
and says what came back, a line of JSON each. To make them takes seconds of a processor, not to be the service's.
"""

from __future__ import annotations

import json
import socket
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

GOOD = json.dumps({"question": "how tall is it ?", "candidates": ["330 metres", "in paris"]}).encode()
MEGABYTE = 1024 * 1024
PIECE = 65536
TRAVERSALS = (
    "../../../etc/passwd",
    "..%2f..%2fetc",
    "/etc/passwd",
    "a/../../b",
    "C:\\windows",
    ".hidden",
    "a\x00b",
    "~root",
)
PAUSE_SECONDS = 0.1
"""Between two kinds, in the program."""
CLOSED = 0
"""In the place of a status: the connection was closed without one."""


def post(body: bytes, *headers: str, path: str = "/v1/rank", length: int | str | None = None) -> bytes:
    """A request with a true `Content-Length`, or the one that is given."""
    lines = [f"POST {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + body


def head(*lines: str) -> bytes:
    """Lines of a request's head, and no body."""
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunked(*chunks: bytes) -> bytes:
    """A good head with a chunked body."""
    begin = head("POST /v1/rank HTTP/1.1", "Host: test", "Transfer-Encoding: chunked")
    return begin + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def question(**fields: object) -> bytes:
    """A body with the given fields."""
    return json.dumps({"question": "how tall ?", "candidates": ["a", "b"]} | fields).encode()


def bomb(megabytes: int) -> bytes:
    """So many megabytes of blanks, compressed piece by piece: whoever makes it shares the machine with the service."""
    compressor = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return b"".join(compressor.compress(b" " * MEGABYTE) for _ in range(megabytes)) + compressor.flush()


@dataclass(frozen=True)
class Attack:
    """One kind."""

    name: str
    statuses: set[int]
    sent: list[bytes] = field(default_factory=list)
    """Each on a connection of its own."""
    reads: bool = True
    """Whether the client reads the answer."""
    leaves: bool = False
    """Whether it goes as soon as it has sent."""


def attacks() -> Iterator[Attack]:
    """All kinds; whoever takes one by one holds no more than one large one."""
    yield Attack("slow body", {408}, [post(b'{"question": ', length=1000)] * 5)
    yield Attack("slow head", {CLOSED}, [b"POST /v1/rank HTTP/1.1\r\nHost: te"] * 5)
    yield Attack("silence", {CLOSED}, [b""] * 5)
    yield Attack("one huge header", {431}, [head("GET /health/live HTTP/1.1", "X-A: " + "a" * MEGABYTE)])
    yield Attack("endless header", {431}, [b"GET /health/live HTTP/1.1\r\nX-A: " + b"a" * MEGABYTE])
    yield Attack("many headers", {431}, [head("GET / HTTP/1.1", *(f"X-{n}: a" for n in range(100_000)))])
    yield Attack("huge path", {431}, [head(f"GET /{'a' * MEGABYTE} HTTP/1.1", "Host: test")])
    yield Attack("deep JSON", {400, 422}, [post(b"[" * MEGABYTE), post(b'{"question":' * 100_000)])
    yield Attack("a large body that is no JSON", {400}, [post(b"x" * 15 * MEGABYTE, "Connection: close")])
    yield Attack("bad UTF-8", {400}, [post(b'{"question": "\xff\xfe", "candidates": ["\xc0\x80"]}')])
    yield Attack(
        "announced too large", {413}, [post(b"", length=10**9), post(b"", "Expect: 100-continue", length=10**9)]
    )
    yield Attack("too large in chunks", {413}, [chunked(*[b" " * MEGABYTE] * 17)])
    yield Attack("a length of many digits", {400, 413}, [post(b"", length="9" * 400), post(b"", length="9" * 5000)])
    yield Attack("a negative length", {400}, [post(GOOD, length="-5"), post(GOOD, length="0x10")])
    yield Attack("two lengths", {400}, [post(GOOD, "Content-Length: 3"), post(GOOD, "Content-Length: 0")])
    yield Attack(
        "length and chunks", {400}, [post(b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n", "Transfer-Encoding: chunked")]
    )
    encodings = ("chunked, identity", "xchunked", "identity, chunked, gzip")
    yield Attack(
        "odd encodings",
        {400},
        [head("POST /v1/rank HTTP/1.1", "Host: test", f"Transfer-Encoding: {each}") + GOOD for each in encodings],
    )
    yield Attack(
        "a huge chunk",
        {400, 413},
        [
            head("POST /v1/rank HTTP/1.1", "Host: test", "Transfer-Encoding: chunked") + size + b"\r\n"
            for size in (b"FFFFFFFFFFFFFFFFFF", b"-1")
        ],
    )
    numbers = (b"1e400", b"9" * 100_000, b"-0", b"1e-400", b"NaN", b"Infinity")
    yield Attack(
        "gigantic numbers",
        {400, 422},
        [
            post(b'{"question": "q", "candidates": ["a"], "%s": %s}' % (name, number))
            for name in (b"top_k", b"deadline_ms", b"priority")
            for number in numbers
            if (name, number) != (b"priority", b"-0")
        ],
    )
    yield Attack("paths for a model", {404}, [post(question(model=name)) for name in TRAVERSALS])
    yield Attack("paths for a version", {404}, [post(question(model=f"random-tiny@{name}")) for name in TRAVERSALS])
    yield Attack(
        "paths in the URL",
        {404, 405, 400},
        [
            head(f"GET {path} HTTP/1.1", "Host: test", "Connection: close")
            for path in (
                "/assets/../settings.py",
                "/assets/%2e%2e/settings.py",
                "/assets//etc/passwd",
                "/v2/models/..%2f..%2fetc",
                "/v1/models/%2e%2e/shadow",
                "/assets/%00",
                "/../../etc/passwd",
                "http://evil/v1/nothing",
                "/%ff%fe",
            )
        ],
    )
    yield Attack("a million fields", {422}, [post(b"{%s}" % b",".join(b'"%d":0' % n for n in range(10**6)))])
    yield Attack("a million candidates", {422}, [post(b'{"question":"q","candidates":[%s""]}' % (b'"",' * 10**6))])
    yield Attack("a million wrong candidates", {422}, [post(b'{"question":"q","candidates":[%s0]}' % (b"0," * 10**6))])
    yield Attack("a bomb", {400}, [post(bomb(100), "Content-Encoding: gzip")])
    yield Attack(
        "no HTTP",
        {400, CLOSED},
        [
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x00" * 1000,
            b"GET / HTTP/9.9\r\n\r\n",
            head("BREW /v1/rank HTTP/1.1", "Host: test"),
        ],
    )
    yield Attack(
        "control characters", {400}, [post(GOOD, "X-A: a\x00b"), post(GOOD, "X\x01A: a"), post(GOOD, "X A: b")]
    )
    yield Attack(
        "an upgrade",
        {404, 405, 400},
        [
            head(
                "GET /v1/rank HTTP/1.1",
                "Host: test",
                "Connection: upgrade, close",
                "Upgrade: websocket",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                "Sec-WebSocket-Version: 13",
            )
        ],
    )
    yield Attack(
        "one giant word", {200, 413, 422}, [post(question(candidates=["a" * 15 * MEGABYTE]), "Connection: close")]
    )
    yield Attack(
        "one giant text", {200, 413, 422}, [post(question(question="a b " * 3 * MEGABYTE), "Connection: close")]
    )
    yield Attack("a body after its answer", {404}, [post(b"x" * 8 * MEGABYTE, path="/nothing")])
    trailers = b"".join(b"X-%d: a\r\n" % number for number in range(100_000))
    begins = [
        head(f"POST {path} HTTP/1.1", "Host: test", "Transfer-Encoding: chunked") for path in ("/nothing", "/v1/rank")
    ]
    yield Attack("endless trailers", {404, CLOSED}, [begin + b"0\r\n" + trailers for begin in begins])
    yield Attack("thousands of requests", {200}, [head("GET /health/live HTTP/1.1", "Host: test") * 5000])
    yield Attack("many requests, then gone", {CLOSED}, [post(GOOD) * 200] * 5, leaves=True)
    yield Attack(
        "answers that nobody reads",
        {CLOSED},
        [post(question(candidates=["word " * 200] * 500, return_text=True)) * 40],
        reads=False,
    )


def statuses(url: str, attack: Attack) -> list[int]:
    """What each of an attack's connections got."""
    parts = urlsplit(url)
    opened = [socket.create_connection((parts.hostname, parts.port), timeout=60) for _ in attack.sent]
    try:
        for connection, sent in zip(opened, attack.sent, strict=True):
            _send(connection, sent)
        if attack.leaves:
            return [CLOSED]
        return [_status(connection) if attack.reads else _wait_closed(connection) for connection in opened]
    finally:
        for connection in opened:
            connection.close()


def _send(connection: socket.socket, content: bytes) -> None:
    try:
        connection.sendall(content)
    except (ConnectionError, TimeoutError):  # it answered before it had read all
        return


def _status(connection: socket.socket) -> int:
    try:
        answer = connection.recv(PIECE)
    except ConnectionError:
        return CLOSED
    if answer.startswith(b"HTTP/1.1 100"):
        answer = connection.recv(PIECE)
    return int(answer.split(b" ", 2)[1]) if answer else CLOSED


def _wait_closed(connection: socket.socket) -> int:
    """Without reading: the service gives up, and says so with a reset."""
    for _ in range(600):
        try:
            connection.send(b"x")
        except OSError:
            return CLOSED
        time.sleep(0.1)
    raise AssertionError("the service waits for a client that does not read")


if __name__ == "__main__":
    made = list(attacks())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for each in made:
        time.sleep(PAUSE_SECONDS)
        sys.stdout.write(json.dumps([each.name, statuses(sys.argv[1], each)]) + "\n")
        sys.stdout.flush()
