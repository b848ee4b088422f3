"""The load generator against a real HTTP server in a thread, with scripted behaviour."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import pytest
from tests.http_server import Asked, answering

from cerberank_benchmarks.clients.traffic import Traffic, run_phase

RETRY_AFTER = 1


@pytest.fixture
def url() -> Iterator[str]:
    """A server that refuses each body for RETRY_AFTER seconds after its first arrival, then answers with as many
    results as it asks for; it fails for odd numbers.
    """
    seen: dict[bytes, float] = {}

    def answer(asked: Asked) -> tuple[int, object, dict[str, str]]:
        count = json.loads(asked.body)["count"]
        before = seen.setdefault(asked.body, time.monotonic())
        if count % 2:
            return 500, {}, {}
        if time.monotonic() - before < RETRY_AFTER:
            return 503, {}, {"Retry-After": str(RETRY_AFTER)}
        return 200, {"results": [{"index": 0}] * count, "usage": {"tokens": 10 * count}}, {}

    with answering(answer) as address:
        yield address


def asking(count: int) -> Traffic:
    """Requests for `count` results."""
    return Traffic(shares={count: 1.0}, bodies={count: [json.dumps({"count": count}).encode()]})


def test_refused_clients_come_back_when_they_were_told(url: str) -> None:
    """Every early arrival is refused once and answered after Retry-After; none is lost."""
    arrivals = asyncio.run(run_phase(url, asking(4), rate=20, seconds=3.0, seed=0))
    early = [arrival for arrival in arrivals if arrival.refusals]
    assert early
    assert {arrival.fate for arrival in arrivals} == {"answered"}
    assert all(arrival.ended - arrival.seconds >= RETRY_AFTER for arrival in early)


def test_a_client_gives_up_when_the_phase_ends(url: str) -> None:
    """Retry-After beyond the end of the phase is not waited for."""
    arrivals = asyncio.run(run_phase(url, asking(4), rate=20, seconds=0.5, seed=0))
    assert {arrival.fate for arrival in arrivals} == {"gave up"}
    assert all(arrival.refusals == 1 for arrival in arrivals)


def test_other_errors_are_failures(url: str) -> None:
    """A 500 counts as a failure, neither as an answer nor a refusal, and is not retried."""
    arrivals = asyncio.run(run_phase(url, asking(3), rate=20, seconds=0.5, seed=0))
    assert {arrival.fate for arrival in arrivals} == {"failed"}
