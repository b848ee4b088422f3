"""A service that is kept busy, and what its clients were told."""

from __future__ import annotations

import itertools
import time
from typing import Any

import httpx
from tools.process import Process

from cerberank_benchmarks.clients.load import NO_ANSWER, Load, request_of


def statuses_of_a_stop(service: Process, body: dict[str, Any], *, clients: int) -> list[int]:
    """Statuses of the question from clients that ask until they are refused, while SIGTERM ends the busy service.

    Every 200 is checked to rank all candidates, every refusal to say when to come back, the service to end with code 0.
    """
    load = Load(service.url, refused="end", patience=120.0)
    with load.meanwhile(load.in_loops([itertools.repeat(request_of(body))] * clients)):
        wait_until_queued(service.url)
        service.terminate()
        assert service.process.wait(timeout=60) == 0
    for answer in load.answers:
        assert answer.fate == "answered" or answer.status != httpx.codes.OK
        assert answer.status in {httpx.codes.OK, NO_ANSWER} or int(answer.retry_after or 0) >= 1
    return [answer.status for answer in load.answers]


def wait_until_queued(url: str) -> None:
    """Until the metrics, which are up to a second old, show queued tokens."""
    end = time.monotonic() + 60
    with httpx.Client(base_url=url) as client:
        while True:
            lines = client.get("/metrics").text.splitlines()
            if float(next(line.split()[1] for line in lines if line.startswith("cerberank_queued_tokens "))) > 0:
                return
            assert time.monotonic() < end, "nothing was queued"
            time.sleep(0.005)
