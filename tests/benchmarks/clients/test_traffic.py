from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from tests.benchmarks.moody import RETRY_AFTER, asking, moody_server

from cerberank_benchmarks.clients.traffic import Traffic, run_clients, run_phase


def test_a_client_asks_again_when_it_is_answered() -> None:
    """Each client's requests follow one another, its own traffic only, until the time is over."""
    with moody_server(patience=0) as url:
        four, six = run_clients(url, [asking(4), asking(6)], seconds=2.0, seed=0)
    for arrivals, count in ((four, 4), (six, 6)):
        assert {(arrival.candidates, arrival.fate, arrival.tokens) for arrival in arrivals} == {
            (count, "answered", 10 * count)
        }
        assert len(arrivals) > 1
        assert all(a.ended <= b.ended - b.seconds for a, b in itertools.pairwise(arrivals))


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


def test_the_same_seed_sends_the_same_requests(url: str) -> None:
    """Arrivals follow from the seed alone, not from the answers."""
    mixed = Traffic(shares={2: 0.5, 3: 0.5}, bodies={2: [b'{"count": 2}'], 3: [b'{"count": 3}']})
    sizes = [
        [arrival.candidates for arrival in asyncio.run(run_phase(url, mixed, rate=50, seconds=0.4, seed=7))]
        for _ in range(2)
    ]
    assert sizes[0] == sizes[1]
    assert set(sizes[0]) == {2, 3}
