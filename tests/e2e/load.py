"""Clients that keep a service busy, so that its metrics, up to a second old, show that it is."""

from __future__ import annotations

import time
from typing import Any

import httpx

NOT_TAKEN = 0
"""Stands for a connection that the service had not taken yet when it closed its port."""


def rank_until_refused(url: str, body: dict[str, Any]) -> list[int]:
    """Statuses of the same question asked again and again; the last one is the first that is not 200.

    Every 200 is checked to rank all candidates, every other status to say when to come back.
    """
    statuses = []
    while not statuses or statuses[-1] == 200:
        try:
            answer = httpx.post(f"{url}/v1/rank", json=body, timeout=120)
        except httpx.TransportError:
            return [*statuses, NOT_TAKEN]
        statuses.append(answer.status_code)
        if answer.status_code == 200:
            assert len(answer.json()["results"]) == len(body["candidates"])
        else:
            assert int(answer.headers["Retry-After"]) >= 1
    return statuses


def wait_until_queued(url: str) -> None:
    """Until the metrics show queued tokens."""
    end = time.monotonic() + 60
    with httpx.Client(base_url=url) as client:
        while True:
            lines = client.get("/metrics").text.splitlines()
            if float(next(line.split()[1] for line in lines if line.startswith("cerberank_queued_tokens "))) > 0:
                return
            assert time.monotonic() < end, "nothing was queued"
            time.sleep(0.005)
