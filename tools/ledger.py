"""A steady load whose every request is accounted for: what was asked, what came, and what the proxy says of it."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx
import numpy as np

from tools.pace import asking

CONNECTIONS = 64
PATIENCE_SECONDS = 150.0
"""How long a client waits: longer than the proxy's two attempts."""
TOLERANCE = 0.01
"""Scores of one pair may differ by so much from batch to batch; nearer candidates may change places."""
WORDS = ("the", "tower", "old", "built", "paris", "iron", "metres", "high", "river", "stone", "who", "bees", "honey")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One request and its answer; times are of the monotonic clock."""

    id: str
    body: int
    """Which of the bodies."""
    due: float
    done: float
    status: int
    """0: no answer, or half of one."""
    retry_after: str | None = None
    answer_id: str = ""
    version: str = ""
    order: tuple[int, ...] = ()


@dataclass
class Ledger:
    """Asks `url` `rate` questions a second, in turns of several bodies."""

    url: str
    bodies: Sequence[Mapping[str, Any]]
    rate: float
    seed: int = 0
    entries: list[Entry] = field(default_factory=list)

    def running(self) -> AbstractContextManager[None]:
        """Ask while the block lasts; every question has its entry when it ends."""
        return asking(self.url, self.rate, self._ask, connections=CONNECTIONS, patience=PATIENCE_SECONDS)

    def _ask(self, client: httpx.Client, due: float, number: int) -> None:
        own, body = f"chaos-{self.seed}-{number}", number % len(self.bodies)
        status, content, after = 0, {}, None
        try:
            answer = client.post("/v1/rank", json=self.bodies[body], headers={"X-Request-Id": own})
            status, content, after = answer.status_code, answer.json(), answer.headers.get("retry-after")
        except (httpx.HTTPError, ValueError):
            status = 0
        self.entries.append(
            Entry(
                id=own,
                body=body,
                due=due,
                done=time.monotonic(),
                status=status,
                retry_after=after,
                answer_id=str(content.get("id") or content.get("error", {}).get("request_id", "")),
                version=str(content.get("version", "")),
                order=tuple(result["index"] for result in content.get("results", ())),
            )
        )


def some_bodies(count: int, candidates: int, seed: int) -> list[dict[str, Any]]:
    """Questions with different texts."""
    rng = random.Random(seed)
    texts = [[" ".join(rng.choices(WORDS, k=rng.randint(8, 40))) for _ in range(candidates)] for _ in range(count)]
    return [{"question": f"how tall is the tower number {n} ?", "candidates": each} for n, each in enumerate(texts)]


def reference(url: str, bodies: Sequence[Mapping[str, Any]]) -> list[dict[int, float]]:
    """Each candidate's score in each body, from a service that nothing has happened to."""
    with httpx.Client(base_url=url, timeout=60.0) as client:
        answers = [client.post("/v1/rank", json=body).raise_for_status().json() for body in bodies]
    return [{result["index"]: result["score"] for result in answer["results"]} for answer in answers]


def in_order(order: Sequence[int], scores: Mapping[int, float]) -> bool:
    """Whether all candidates are there, once, by falling score up to the tolerance.

    >>> in_order([1, 0], {0: 0.2, 1: 0.9}), in_order([0, 1], {0: 0.2, 1: 0.9}), in_order([1], {0: 0.2, 1: 0.9})
    (True, False, False)
    """
    falling = all(scores[later] <= scores[earlier] + TOLERANCE for earlier, later in pairwise(order))
    return sorted(order) == sorted(scores) and falling


def faults_of(
    entries: Sequence[Entry], log: str, good: set[str], scores: Sequence[Mapping[int, float]]
) -> dict[str, list[str]]:
    """What no request may suffer, with the ids that did; `log` is the proxy's, `good` the versions that were ready."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith('{"time"')]
    logged = Counter(line["request_id"] for line in lines)
    statuses = {line["request_id"]: line["status"] for line in lines}
    served = [entry for entry in entries if entry.status == 200]
    return {
        "no answer": [e.id for e in entries if e.status == 0],
        "not once in the proxy's log": [e.id for e in entries if logged[e.id] != 1],
        "another status than the proxy's": [e.id for e in entries if e.status and e.status != statuses.get(e.id)],
        "an answer to another request": [e.id for e in entries if e.status and e.answer_id != e.id],
        "neither 200 nor 503": [e.id for e in entries if e.status not in {0, 200, 503}],
        "a refusal without Retry-After": [e.id for e in entries if e.status == 503 and not e.retry_after],
        "a version that was not ready": [e.id for e in served if e.version not in good],
        "a wrong order": [e.id for e in served if not in_order(e.order, scores[e.body])],
    }


def p99(entries: Sequence[Entry]) -> float:
    """Milliseconds from when a question was due to its answer; NaN without answers."""
    return float(np.percentile([1000.0 * (e.done - e.due) for e in entries], 99)) if entries else float("nan")
