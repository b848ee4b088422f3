"""Closed-loop load: clients that wait for each answer before the next request. In: the traffic of each client. Out: the
outcomes of each client's requests.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

import httpx

from cerberank_benchmarks.clients.traffic import Arrival, Traffic, ask, connect


async def run_clients(url: str, clients: Sequence[Traffic], *, seconds: float, seed: int) -> list[list[Arrival]]:
    """Run one client for each traffic; none sends a request after `seconds`, and each sends at least one."""
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
