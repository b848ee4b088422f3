"""A steady load that records every request and its answer, and compares them with the proxy's log."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import httpx

from cerberank_benchmarks.clients.load import WORDS, Answer, Load, Request, request_of

CONNECTIONS = 64
PATIENCE_SECONDS = 150.0
"""Seconds that a client waits; longer than the proxy's two attempts."""
TOLERANCE = 0.01
"""Difference by which a pair's scores may vary between batches; candidates with closer scores may change places."""


def ledger(url: str) -> Load:
    """A load that keeps every answer."""
    return Load(url, connections=CONNECTIONS, patience=PATIENCE_SECONDS)


def in_turns(bodies: Sequence[dict[str, Any]], seed: int) -> Iterator[Request]:
    """Requests that use the bodies in turn, each with its own id."""
    for number in itertools.count():
        place = number % len(bodies)
        yield request_of(bodies[place], number=place, id=f"chaos-{seed}-{number}")


def some_bodies(count: int, candidates: int, seed: int) -> list[dict[str, Any]]:
    """Questions with different texts."""
    rng = random.Random(seed)
    texts = [[" ".join(rng.choices(WORDS, k=rng.randint(8, 40))) for _ in range(candidates)] for _ in range(count)]
    return [{"question": f"how tall is the tower number {n} ?", "candidates": each} for n, each in enumerate(texts)]


def reference(url: str, bodies: Sequence[Mapping[str, Any]]) -> list[dict[int, float]]:
    """The score of each candidate of each body, from a service before any fault."""
    with httpx.Client(base_url=url, timeout=60.0) as client:
        answers = [client.post("/v1/rank", json=body).raise_for_status().json() for body in bodies]
    return [{result["index"]: result["score"] for result in answer["results"]} for answer in answers]


def in_order(order: Sequence[int], scores: Mapping[int, float]) -> bool:
    """True if `order` has every candidate exactly once, by falling score within the tolerance.

    >>> in_order([1, 0], {0: 0.2, 1: 0.9}), in_order([0, 1], {0: 0.2, 1: 0.9}), in_order([1], {0: 0.2, 1: 0.9})
    (True, False, False)
    """
    falling = all(scores[later] <= scores[earlier] + TOLERANCE for earlier, later in pairwise(order))
    return sorted(order) == sorted(scores) and falling


def faults_of(
    answers: Sequence[Answer], log: str, good: set[str], scores: Sequence[Mapping[int, float]]
) -> dict[str, list[str]]:
    """The ids of requests with a wrong outcome, by the kind of fault.

    `log` is the proxy's log, `good` are the versions that were ready, `scores` the reference scores by body.
    """
    lines = [json.loads(line) for line in log.splitlines() if line.startswith('{"time"')]
    logged = Counter(line["request_id"] for line in lines)
    statuses = {line["request_id"]: line["status"] for line in lines}
    served = [entry for entry in answers if entry.status == 200]
    return {
        "no answer": [e.id for e in answers if e.status == 0],
        "not once in the proxy's log": [e.id for e in answers if logged[e.id] != 1],
        "another status than the proxy's": [e.id for e in answers if e.status and e.status != statuses.get(e.id)],
        "an answer to another request": [e.id for e in answers if e.status and e.answer_id != e.id],
        "neither 200 nor 503": [e.id for e in answers if e.status not in {0, 200, 503}],
        "a refusal without Retry-After": [e.id for e in answers if e.status == 503 and not e.retry_after],
        "a version that was not ready": [e.id for e in served if e.version not in good],
        "a wrong order": [e.id for e in served if not in_order(e.order, scores[e.number])],
    }
