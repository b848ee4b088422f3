"""Open-loop load: requests arrive in a Poisson process, whether earlier ones are answered or not, from clients that
obey `Retry-After`. In: traffic and a rate. Out: the outcome of each request.
"""

from __future__ import annotations

import asyncio
import random
import time

from cerberank_benchmarks.clients.traffic import Arrival, Traffic, ask, connect


async def run_phase(url: str, traffic: Traffic, *, rate: float, seconds: float, seed: int) -> list[Arrival]:
    """Send `rate` requests per second for `seconds`; returns when the last accepted request is answered."""
    rng = random.Random(seed)
    began = time.perf_counter()
    async with connect(url) as client, asyncio.TaskGroup() as group:
        tasks = []
        arrives = rng.expovariate(rate)
        while arrives < seconds:
            # Behind schedule, the next request starts at once: a slow client process must not reduce the load.
            await asyncio.sleep(max(0.0, began + arrives - time.perf_counter()))
            size, content = traffic.draw(rng)
            tasks.append(group.create_task(ask(client, size, content, began=began, end=began + seconds)))
            arrives += rng.expovariate(rate)
    return [task.result() for task in tasks]
