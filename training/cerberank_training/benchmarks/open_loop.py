"""Requests that arrive when they arrive, not when the last one was answered: a Poisson process of clients that obey
`Retry-After`. In: bodies by size and a rate. Out: what became of each request.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import httpx

BUSY = (429, 503)


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """What became of one request."""

    candidates: int
    fate: Literal["answered", "gave up", "failed"]
    """A client that is still refused when the phase ends gives up."""
    refusals: int
    seconds: float
    """Of the attempt that was answered."""
    ended: float
    """Seconds after the phase began."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """Sizes of questions with their shares, and the requests of each."""

    shares: Mapping[int, float]
    bodies: Mapping[int, Sequence[bytes]]

    @property
    def mean_candidates(self) -> float:
        """Of a request."""
        return sum(size * share for size, share in self.shares.items()) / sum(self.shares.values())


async def run_phase(url: str, traffic: Traffic, *, rate: float, seconds: float, seed: int) -> list[Arrival]:
    """Let `rate` requests a second arrive for `seconds`; returns when the last accepted one is answered."""
    rng = random.Random(seed)
    sizes, weights = list(traffic.shares), list(traffic.shares.values())
    began = time.perf_counter()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=600.0, limits=limits) as client, asyncio.TaskGroup() as group:
        tasks = []
        arrives = rng.expovariate(rate)
        while arrives < seconds:
            # Behind schedule, the next one starts at once: a slow client must not thin the load out.
            await asyncio.sleep(max(0.0, began + arrives - time.perf_counter()))
            size = rng.choices(sizes, weights)[0]
            body = rng.choice(traffic.bodies[size])
            tasks.append(group.create_task(_ask(client, size, body, began=began, end=began + seconds)))
            arrives += rng.expovariate(rate)
    return [task.result() for task in tasks]


async def _ask(client: httpx.AsyncClient, candidates: int, body: bytes, *, began: float, end: float) -> Arrival:
    refusals = 0
    while True:
        started = time.perf_counter()
        response = await client.post("/v1/rank", content=body)
        now = time.perf_counter()
        wait = float(response.headers.get("retry-after", 1))
        if response.status_code in BUSY:
            refusals += 1
            if now + wait < end:
                await asyncio.sleep(wait)
                continue
        fate: Literal["answered", "gave up", "failed"] = "failed"
        if response.status_code == 200 and len(response.json()["results"]) == candidates:
            fate = "answered"
        elif response.status_code in BUSY:
            fate = "gave up"
        return Arrival(candidates=candidates, fate=fate, refusals=refusals, seconds=now - started, ended=now - began)
