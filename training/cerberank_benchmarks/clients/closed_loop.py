"""Clients that always wait for an answer before they ask again. In: the traffic of each. Out: what became of the
requests of each.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

import httpx

from cerberank_benchmarks.clients.traffic import Arrival, Traffic, ask, connect


async def run_clients(url: str, clients: Sequence[Traffic], *, seconds: float, seed: int) -> list[list[Arrival]]:
    """One client for each traffic; none asks again after `seconds`, and each asks at least once."""
    began = time.perf_counter()
    async with connect(url) as client, asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_client(client, traffic, random.Random(f"{seed} {number}"), began, began + seconds))
            for number, traffic in enumerate(clients)
        ]
    return [task.result() for task in tasks]


async def _client(
    client: httpx.AsyncClient, traffic: Traffic, rng: random.Random, began: float, end: float
) -> list[Arrival]:
    arrivals: list[Arrival] = []
    while not arrivals or time.perf_counter() < end:
        size, content = traffic.draw(rng)
        arrivals.append(await ask(client, size, content, began=began, end=end))
    return arrivals
