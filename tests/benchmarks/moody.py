"""A real HTTP server in a thread with scripted behaviour, to test clients with."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager

from tests.http_server import Asked, answering

from cerberank_benchmarks.clients.traffic import Traffic

RETRY_AFTER = 1


def moody_server(patience: float = RETRY_AFTER) -> AbstractContextManager[str]:
    """The URL of a new server, which refuses each body for `patience` seconds after its first arrival, then answers
    with as many results as it asks for; it fails for odd numbers.
    """
    seen: dict[bytes, float] = {}

    def answer(asked: Asked) -> tuple[int, object, dict[str, str]]:
        count = json.loads(asked.body)["count"]
        before = seen.setdefault(asked.body, time.monotonic())
        if count % 2:
            return 500, {}, {}
        if time.monotonic() - before < patience:
            return 503, {}, {"Retry-After": str(RETRY_AFTER)}
        return 200, {"results": [{"index": 0}] * count, "usage": {"tokens": 10 * count}}, {}

    return answering(answer)


def asking(count: int) -> Traffic:
    """Requests for `count` results."""
    return Traffic(shares={count: 1.0}, bodies={count: [json.dumps({"count": count}).encode()]})
