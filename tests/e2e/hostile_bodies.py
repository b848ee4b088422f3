"""Well-framed requests with hostile content: bodies, names and paths. The answer is the same alone and behind."""

from __future__ import annotations

import json
import zlib

from tests.e2e.hostile import CUT, MEGABYTE, get, post, same
from tests.e2e.oversized import binary_tensors

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
    """So many megabytes of blanks, compressed."""
    compressor = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return b"".join(compressor.compress(b" " * MEGABYTE) for _ in range(megabytes)) + compressor.flush()


def tensor() -> bytes:
    """A question whose candidates are a binary tensor of a million empty texts, of any model."""
    (made,) = binary_tensors({"paths": ["/v2/models/any/infer"]}, 4_160_000)
    lines = [f"{name}: {value}".encode() for name, value in made.headers.items()]
    return post(made.body, *lines).replace(b"/v1/rank", made.path.encode(), 1)


BODIES = [
    same("deep arrays", post(b"[" * MEGABYTE), INVALID),
    same("deep objects", post(b'{"question":' * 100_000), INVALID),
    same("3 MB that are no JSON", post(b"x" * 3 * MEGABYTE), "400 open"),
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
