"""Hostile requests, as data: the bytes to send and the allowed outcomes.

`alone` is the outcome of `cerberank serve` with h11, `behind` the outcome through the proxy of `deploy/nginx`. Requests
that are framed correctly but have hostile content (BODIES) have the same outcome in both places.
"""

from __future__ import annotations

import json
import re
import zlib

from starlette.routing import Mount, Route

from cerberank_service.app import create_app
from cerberank_service.settings import Settings
from tools.oversized import binary_tensors
from tools.wire import Case

GOOD = json.dumps({"question": "how tall is it ?", "candidates": ["330 metres", "in paris"]}).encode()
MEGABYTE = 1024 * 1024
HEAD = b"POST /v1/rank HTTP/1.1\r\nHost: test\r\n"
REFUSED = "400 closed"
CUT = "closed | 400 closed | 431 closed | 414 closed"
"""Outcomes of heads that are too large. The rest of the head is not read, so a reset may arrive before the answer."""


def post(body: bytes, *lines: bytes, length: object = None) -> bytes:
    """A question with further `lines` in its head, and with the right `Content-Length` or the given one."""
    size = b"Content-Length: %s" % str(len(body) if length is None else length).encode()
    return HEAD + b"\r\n".join([size, *lines, b"", b""]) + body


def framed(lines: bytes, body: bytes = GOOD) -> bytes:
    """A question whose head has these lines, unchanged, in place of `Content-Length`."""
    return HEAD + lines + b"\r\n\r\n" + body


def chunked(body: bytes, lines: bytes = b"Transfer-Encoding: chunked") -> bytes:
    """A question whose `body` is already divided into chunks."""
    return framed(lines, body)


def chunks(content: bytes = GOOD, *, size: bytes = b"", after: bytes = b"", end: bytes = b"0\r\n\r\n") -> bytes:
    """One chunk with the given or the right size, `after` behind the size, and the end of the body."""
    return (size or b"%x" % len(content)) + after + b"\r\n" + content + b"\r\n" + end


def get(*lines: bytes, path: bytes = b"/health/live") -> bytes:
    """A request without a body."""
    return b"\r\n".join([b"GET " + path + b" HTTP/1.1", b"Host: test", *lines, b"", b""])


def same(name: str, sent: bytes, outcome: str) -> Case:
    """A case with the same outcome in both places."""
    return Case(name=name, sent=sent, alone=outcome, behind=outcome)


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: test\r\n\r\n"
LENGTH = b"Content-Length: %d" % len(GOOD)
CODING = b"Transfer-Encoding: "

SMUGGLING = [
    # h11 reads chunks and ignores the length, as RFC 9112 allows; a proxy that read the length would disagree.
    Case(
        name="length, then chunks",
        sent=post(b"0\r\n\r\n" + SMUGGLED, CODING + b"chunked"),
        alone="400 404 open | 400 closed",
        behind=REFUSED,
    ),
    Case(
        name="chunks, then length",
        sent=framed(CODING + b"chunked\r\nContent-Length: 4", chunks()),
        alone="200 open | 400 closed",
        behind=REFUSED,
    ),
    same("two different lengths", framed(LENGTH + b"\r\nContent-Length: 3"), REFUSED),
    Case(
        name="one length twice",
        sent=framed(LENGTH + b"\r\n" + LENGTH),
        alone="200 open | 400 closed",
        behind=REFUSED,
    ),
    same("a list of lengths", framed(b"Content-Length: %d, 3" % len(GOOD)), REFUSED),
    *(
        same(f"a length of {value!r}", post(GOOD, length=value), REFUSED)
        for value in ("-5", "+5", "0x10", "5 5", "5;a", "", "\u0665")
    ),
    *(
        Case(
            name=f"coding {value!r}",
            sent=framed(CODING + value, chunks()),
            alone=REFUSED,
            behind=f"{REFUSED} | 501 closed | 405 closed",
        )
        for value in (
            b"gzip, chunked",
            b"identity",
            b"chunked, identity",
            b"identity, chunked",
            b"xchunked",
            b"chunked, chunked",
            b"chunked;q=1",
            b"\x0bchunked",
            b"",
        )
    ),
    same(
        "identity and chunked in two lines", framed(CODING + b"identity\r\n" + CODING + b"chunked", chunks()), REFUSED
    ),
    same("a coding before a space and colon", framed(LENGTH + b"\r\nTransfer-Encoding : chunked"), REFUSED),
    Case(
        name="chunks in HTTP/1.0",
        sent=chunked(chunks()).replace(b"HTTP/1.1", b"HTTP/1.0"),
        alone="200 closed | 400 closed",
        behind="400 closed",
    ),
    same("a chunk's extension", chunked(chunks(after=b';a="b"')), "200 open"),
    same("a chunk's extension ends with a bare LF", chunked(chunks(after=b";\n")), REFUSED),
    Case(
        name="a chunk size ends with a bare LF",
        sent=chunked(b"%x\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD)),
        alone="400 closed",
        behind="200 open",
    ),
    same("a chunk longer than its size", chunked(chunks(size=b"2")), REFUSED),
    *(
        same(f"a chunk size of {size!r}", chunked(chunks(size=size)), REFUSED)
        for size in (b"-1", b"+5", b"0x5", b" 5", b"5_0", b"g")
    ),
    Case(
        name="a chunk of 2^64 bytes",
        sent=chunked(chunks(size=b"10000000000000000")),
        alone="waits",
        behind="400 closed | 413 closed",
    ),
    same("trailers", chunked(chunks(end=b"0\r\nX-A: b\r\n\r\n")), "200 open"),
    same("a smuggling trailer", chunked(chunks(end=b"0\r\nContent-Length: 5\r\n\r\n")), "200 open"),
    Case(
        name="a folded line",
        sent=framed(b"X-A: b\r\n c\r\n" + LENGTH),
        alone="200 open",
        behind="200 open | 400 closed",
    ),
    Case(
        name="a folded coding",
        sent=framed(LENGTH + b"\r\nTransfer-Encoding:\r\n chunked", chunks()),
        alone="200 open | 400 closed",
        behind="400 closed",
    ),
    same("bare LF in a head", post(GOOD).replace(b"\r\n", b"\n"), "200 open"),
    same("a bare CR in a value", post(GOOD, b"X-A: a\rContent-Length: 3"), REFUSED),
    same("NUL in a value", post(GOOD, b"X-A: a\x00b"), REFUSED),
    same("NUL in a name", post(GOOD, b"X\x00A: b"), REFUSED),
    Case(name="a control character in a value", sent=post(GOOD, b"X-A: a\x01b"), alone="200 open", behind="200 open"),
    same("a space in a name", post(GOOD, b"X A: b"), REFUSED),
    same("no name", post(GOOD, b": b"), REFUSED),
    Case(name="a line without a colon", sent=post(GOOD, b"X-A"), alone="400 closed", behind="200 open"),
    Case(
        name="a space before the first line",
        sent=HEAD + b" X-A: b\r\n" + LENGTH + b"\r\n\r\n" + GOOD,
        alone="200 open",
        behind="400 closed",
    ),
    same("no host", post(GOOD).replace(b"Host: test\r\n", b""), REFUSED),
    same("two hosts", post(GOOD, b"Host: other"), REFUSED),
]
LINES = [
    *(
        same(f"the line {line!r}", line + b"\r\nHost: test\r\n\r\n", "400 closed | 405 closed | 505 closed")
        for line in (
            b"GET\t/health/live\tHTTP/1.1",
            b"GET /health/live http/1.1",
            b"GET /health/li\x00ve HTTP/1.1",
            b"GET HTTP/1.1",
        )
    ),
    *(
        Case(name=f"the line {line!r}", sent=line + b"\r\nHost: test\r\n\r\n", alone=alone, behind=behind)
        for line, alone, behind in (
            (b"GET  /health/live HTTP/1.1", "400 closed", "200 open"),
            (b"GET /health/live  HTTP/1.1", "400 closed", "200 open"),
            (b"GET /health/live HTTP/9.9", "200 open", "400 closed | 505 closed"),
            (b"CONNECT evil:80 HTTP/1.1", "404 open", "400 closed | 405 closed"),
            (b"PRI * HTTP/2.0", "404 open", "400 closed | 505 closed"),
        )
    ),
    Case(name="HTTP/0.9", sent=b"GET /health/live\r\n\r\n", alone="400 closed", behind="-1 closed"),
    same("empty lines before a request", b"\r\n" + get(), "200 open | 400 closed"),
    same("an unknown method", get(path=b"/v1/rank").replace(b"GET", b"BREW"), "405 open | 405 closed | 400 closed"),
    same(
        "a TLS handshake",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        REFUSED + " | closed | waits",
    ),
    Case(
        name="HTTP/2",
        sent=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 9,
        alone="404 400 closed",
        behind="400 closed | 505 closed",
    ),
    same("nothing but NULs", b"\x00" * 1000, REFUSED + " | closed | waits"),
]
UPGRADES = [
    same(
        "an upgrade to h2c, as Java and curl ask for it",
        post(GOOD, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"),
        "200 open",
    ),
    same(
        "an upgrade with another request in its body",
        post(SMUGGLED, b"Connection: Upgrade", b"Upgrade: websocket"),
        "400 open",
    ),
    same(
        "a WebSocket",
        get(
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Sec-WebSocket-Version: 13",
            b"Sec-WebSocket-Key: dGhl",
            path=b"/v1/rank",
        ),
        "405 open",
    ),
    same("100 Continue", post(GOOD, b"Expect: 100-continue"), "200 open"),
]
ORDER = [
    same("three requests at once", post(GOOD) + get() + post(GOOD), "200x3 open"),
    same("a hundred requests at once", get() * 100, "200x100 open"),
    # A question is still answered if invalid bytes follow it.
    same("a stray byte after a question", post(GOOD) + b"\x00", "200 400 closed | 200 closed | 200 waits"),
    same("a stray line after a question", post(GOOD) + b"nonsense\r\n\r\n", "200 400 closed"),
    same("a good question, then a bad one", post(GOOD) + post(GOOD, b"X A: b"), "200 400 closed"),
    same(
        "a body after its answer",
        b"POST /nothing HTTP/1.1\r\nHost: test\r\nContent-Length: 8\r\n\r\n" + b"x" * 8,
        "404 open",
    ),
]
LARGE = [
    same("one huge line", get(b"X-A: " + b"a" * MEGABYTE), CUT),
    same("an endless line", b"GET /health/live HTTP/1.1\r\nX-A: " + b"a" * MEGABYTE, CUT),
    same("many lines", get(*(b"X-%d: a" % n for n in range(100_000))), CUT),
    same("a huge path", get(path=b"/" + b"a" * MEGABYTE), CUT),
    Case(
        name="a huge chunk extension",
        sent=chunked(chunks(after=b";" + b"a" * MEGABYTE)),
        alone="closed | 400 closed",
        behind="200 open",
    ),
    same("announced too large", post(b"", length=10**9), "413 closed"),
    same("announced too large, politely", post(b"", b"Expect: 100-continue", length=10**9), "413 closed"),
    same("a length of 400 digits", post(b"", length="9" * 400), "400 closed | 413 closed"),
    same("a length of 5,000 digits", post(b"", length="9" * 5000), "400 closed | 413 closed"),
    same("too large in chunks", chunked(chunks(b" " * 20 * MEGABYTE)), "413 closed | closed"),
    Case(
        name="endless trailers",
        sent=chunked(chunks(end=b"0\r\n" + b"X-A: b\r\n" * 100_000)),
        alone="closed | 400 closed",
        behind="waits | closed",
    ),
]
SLOW = [
    # Without the proxy the service waits forever, which costs one connection; the proxy ends such a connection.
    Case(name="silence", sent=b"", alone="waits", behind="closed"),
    Case(name="half a head", sent=HEAD, alone="waits", behind="closed | 408 closed"),
    Case(name="half a body", sent=post(GOOD[:10], length=1000), alone="waits", behind="closed | 408 closed"),
    Case(name="half a chunk", sent=chunked(b"ff\r\n{"), alone="waits", behind="closed | 408 closed"),
    Case(name="a head byte by byte", sent=post(GOOD), every=0.1, alone="200 open", behind="closed | 408 closed"),
    Case(
        name="a body byte by byte",
        sent=chunked(b"".join(b"1\r\n%c\r\n" % byte for byte in GOOD) + b"0\r\n\r\n"),
        alone="200 open",
        behind="200 open",
    ),
    Case(
        name="answers that nobody reads",
        sent=post(json.dumps({"question": "q", "candidates": ["word " * 200] * 500, "return_text": True}).encode())
        * 40,
        reads=False,
        alone="waits",
        behind="closed",
    ),
]
CASES = [*SMUGGLING, *LINES, *UPGRADES, *ORDER, *LARGE, *SLOW]

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
NUMBERS = (b"1e400", b"9" * 100_000, b"-0", b"1e-400", b"NaN", b"Infinity")
PATHS = (
    b"/assets/../settings.py",
    b"/assets/%2e%2e/settings.py",
    b"/assets//etc/passwd",
    b"/v2/models/..%2f..%2fetc",
    b"/v1/models/%2e%2e/shadow",
    b"/../../etc/passwd",
    b"http://evil/v1/nothing",
    b"/%ff%fe",
    b"/assets/%00",
)
INVALID = "400 open | 422 open"


def question(**fields: object) -> bytes:
    """A body with the given fields."""
    return json.dumps({"question": "how tall ?", "candidates": ["a", "b"]} | fields).encode()


def bomb(megabytes: int) -> bytes:
    """Compressed blanks, `megabytes` after decompression."""
    compressor = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return b"".join(compressor.compress(b" " * MEGABYTE) for _ in range(megabytes)) + compressor.flush()


def bad_chunk(method: bytes, path: bytes, *lines: bytes) -> bytes:
    """A request whose body begins with an invalid chunk size."""
    return b"\r\n".join([b"%s %s HTTP/1.1" % (method, path), b"Host: test", *lines, CODING + b"chunked", b"", b"Z\r\n"])


def bad_chunks() -> list[Case]:
    """A bad chunk for every method of every path of the public port, and for an unknown path.

    Most of these answer without reading the body, as probes and refusals do.
    """
    requests = [("POST", "/nothing")]
    for route in create_app(Settings()).routes:
        if isinstance(route, Mount):
            requests.append(("GET", f"{route.path}/any"))
        elif isinstance(route, Route):
            path = re.sub(r"{[^}]*}", "any", route.path)
            requests += [(method, path) for method in ("GET", "POST")]
    # nginx may answer a path that it does not forward before it has read the body.
    return [
        Case(
            name=f"a bad chunk for {method} {path}",
            sent=bad_chunk(method.encode(), path.encode()),
            alone=REFUSED,
            behind=f"{REFUSED} | 404 closed | 405 closed",
        )
        for method, path in sorted(set(requests))
    ]


def tensor() -> bytes:
    """A question, to any model, whose candidates are a binary tensor of a million empty texts."""
    (oversized,) = binary_tensors({"paths": ["/v2/models/any/infer"]}, 4_160_000)
    lines = [f"{name}: {value}".encode() for name, value in oversized.headers.items()]
    return post(oversized.body, *lines).replace(b"/v1/rank", oversized.path.encode(), 1)


BODIES = [
    same("deep arrays", post(b"[" * MEGABYTE), INVALID),
    same("deep objects", post(b'{"question":' * 100_000), INVALID),
    same("3 MB that are not JSON", post(b"x" * 3 * MEGABYTE), "400 open"),
    same("bad UTF-8", post(b'{"question": "\xff\xfe", "candidates": ["\xc0\x80"]}'), "400 open"),
    same("half a surrogate", post(rb'{"question": "\ud800", "candidates": ["a"]}'), f"200 open | {INVALID}"),
    *(
        same(
            f"the {field} {number[:9]!r}",
            post(b'{"question": "q", "candidates": ["a"], "%s": %s}' % (field.encode(), number)),
            INVALID,
        )
        for field in ("top_k", "deadline_ms", "priority")
        for number in NUMBERS
        if (field, number) != ("priority", b"-0")
    ),
    *(same(f"the model {name!r}", post(question(model=name)), "404 open") for name in TRAVERSALS),
    *(same(f"the version {name!r}", post(question(model=f"random-tiny@{name}")), "404 open") for name in TRAVERSALS),
    *(same(f"the path {path!r}", get(path=path), "404 open | 405 open | 400 open | 400 closed") for path in PATHS),
    same("300,000 fields", post(b"{%s}" % b",".join(b'"%d":0' % n for n in range(300_000))), INVALID),
    same("900,000 candidates", post(b'{"question":"q","candidates":[%s""]}' % (b'"",' * 900_000)), INVALID),
    same("a million wrong candidates", post(b'{"question":"q","candidates":[%s0]}' % (b"0," * 10**6)), INVALID),
    same("a million texts in a binary tensor", tensor(), INVALID),
    same("a compressed bomb", post(bomb(100), b"Content-Encoding: gzip"), INVALID),
    same("one giant word", post(question(candidates=["a" * 3 * MEGABYTE])), "200 open"),
    same("one giant text", post(question(question="a b " * 700_000)), "200 open"),
    same(
        "a length of 5,000 digits for the JSON part",
        post(b"{}", b"Inference-Header-Content-Length: " + b"9" * 5000),
        f"{INVALID} | {CUT}",
    ),
]
