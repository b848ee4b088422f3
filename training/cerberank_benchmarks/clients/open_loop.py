"""Requests that arrive when they arrive, not when the last one was answered: a Poisson process of clients that obey
`Retry-After`. In: traffic and a rate. Out: what became of each request.
"""

from __future__ import annotations

import asyncio
import random
import time

from cerberank_benchmarks.clients.traffic import Arrival, Traffic, ask, connect


async def run_phase(url: str, traffic: Traffic, *, rate: float, seconds: float, seed: int) -> list[Arrival]:
    """Let `rate` requests a second arrive for `seconds`; returns when the last accepted one is answered."""
    rng = random.Random(seed)
    began = time.perf_counter()
    async with connect(url) as client, asyncio.TaskGroup() as group:
        tasks = []
        arrives = rng.expovariate(rate)
        while arrives < seconds:
            # Behind schedule, the next one starts at once: a slow client must not thin the load out.
            await asyncio.sleep(max(0.0, began + arrives - time.perf_counter()))
            size, content = traffic.draw(rng)
            tasks.append(group.create_task(ask(client, size, content, began=began, end=began + seconds)))
            arrives += rng.expovariate(rate)
    return [task.result() for task in tasks]
