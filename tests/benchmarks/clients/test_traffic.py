from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.benchmarks.moody import RETRY_AFTER, asking, moody_server

from cerberank_benchmarks.clients.traffic import run_phase


@pytest.fixture
def url() -> Iterator[str]:
    """A real server in a thread."""
    with moody_server() as address:
        yield address


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
