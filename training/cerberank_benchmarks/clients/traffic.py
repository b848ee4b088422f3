"""The requests that the clients of a load test send, and the outcome of each request."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import httpx

from cerberank_benchmarks.workload import Workload

BUSY = (429, 503)
VARIANTS = 4
"""The number of different questions of each size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """The outcome of one request."""

    candidates: int
    fate: Literal["answered", "gave up", "failed"]
    """A client whose request is still refused when the time is over gives up."""
    refusals: int
    seconds: float
    """The duration of the attempt that was answered."""
    ended: float
    """When the request ended, in seconds after the load began."""
    tokens: int = 0
    """The request's tokens, as the service counted them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """Sizes of questions with their shares, and the requests of each."""

    shares: Mapping[int, float]
    bodies: Mapping[int, Sequence[bytes]]

    @classmethod
    def mixed(cls, workload: Workload, shares: Mapping[int, float]) -> Self:
        """Traffic with questions of the `workload` in every size."""
        bodies = {size: [body(workload, size, seed) for seed in range(VARIANTS)] for size in shares}
        return cls(shares=shares, bodies=bodies)

    @property
    def mean_candidates(self) -> float:
        """The mean number of candidates of a request."""
        return sum(size * share for size, share in self.shares.items()) / sum(self.shares.values())

    def draw(self, rng: random.Random) -> tuple[int, bytes]:
        """The size and the body of the next request."""
        size = rng.choices(list(self.shares), list(self.shares.values()))[0]
        return size, rng.choice(self.bodies[size])


def body(workload: Workload, candidates: int, seed: int = 0) -> bytes:
    """The body of a request to `/v1/rank`."""
    task = workload.task(candidates, seed=seed)
    return json.dumps({"question": task.question, "candidates": task.texts}).encode()


def connect(url: str) -> httpx.AsyncClient:
    """An HTTP client without a limit of connections, so that no request waits for another in the client."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=url, timeout=600.0, limits=limits)


async def ask(client: httpx.AsyncClient, candidates: int, content: bytes, *, began: float, end: float) -> Arrival:
    """Send until answered; wait for each `Retry-After` that ends before `end` (`began`, `end`: perf_counter)."""
    refusals = 0
    while True:
        started = time.perf_counter()
        response = await client.post("/v1/rank", content=content)
        now = time.perf_counter()
        if response.status_code in BUSY:
            refusals += 1
            wait = float(response.headers.get("retry-after", 1))
            if now + wait < end:
                await asyncio.sleep(wait)
                continue
        fate: Literal["answered", "gave up", "failed"] = "gave up" if response.status_code in BUSY else "failed"
        tokens = 0
        if response.status_code == 200:
            answer = response.json()
            if len(answer["results"]) == candidates:
                fate, tokens = "answered", int(answer.get("usage", {}).get("tokens", 0))
        return Arrival(
            candidates=candidates,
            fate=fate,
            refusals=refusals,
            seconds=now - started,
            ended=now - began,
            tokens=tokens,
        )
