"""The requests of a load test: a mix of questions of several sizes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from cerberank_benchmarks.clients.load import Answer, Load, Request, by_chance
from cerberank_benchmarks.workload import Workload

VARIANTS = 4
"""The number of different questions of each size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """Sizes of questions with their shares, and the request bodies of each size."""

    shares: Mapping[int, float]
    bodies: Mapping[int, Sequence[bytes]]

    @classmethod
    def mixed(cls, workload: Workload, shares: Mapping[int, float]) -> Self:
        """Traffic with questions from `workload` in every size of `shares`."""
        bodies = {size: [body(workload, size, seed) for seed in range(VARIANTS)] for size in shares}
        return cls(shares=shares, bodies=bodies)

    @property
    def mean_candidates(self) -> float:
        """The mean number of candidates of a request."""
        return sum(size * share for size, share in self.shares.items()) / sum(self.shares.values())

    def requests(self, rng: random.Random) -> Iterator[Request]:
        """An endless sequence of requests."""
        while True:
            size = rng.choices(list(self.shares), list(self.shares.values()))[0]
            yield Request(content=rng.choice(self.bodies[size]), candidates=size)


def body(workload: Workload, candidates: int, seed: int = 0) -> bytes:
    """The body of a request to `/v1/rank`."""
    task = workload.task(candidates, seed=seed)
    return json.dumps({"question": task.question, "candidates": task.texts}).encode()


def run_clients(url: str, clients: Sequence[Traffic], *, seconds: float, seed: int) -> list[list[Answer]]:
    """Run one client for each traffic; clients wait for each answer and obey `Retry-After`. Returns their answers."""
    load = Load(url, seconds=seconds, refused="wait")
    requests = [traffic.requests(random.Random(f"{seed} {number}")) for number, traffic in enumerate(clients)]
    return asyncio.run(load.in_loops(requests))


async def run_phase(url: str, traffic: Traffic, *, rate: float, seconds: float, seed: int) -> list[Answer]:
    """Send `rate` requests per second in a Poisson process, from clients that obey `Retry-After`."""
    load = Load(url, seconds=seconds, refused="wait")
    requests = traffic.requests(random.Random(seed))
    return await load.at_times(requests, by_chance(rate, random.Random(f"{seed} times")))
