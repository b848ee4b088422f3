from __future__ import annotations

import asyncio
import itertools

from tests.benchmarks.moody import asking, moody_server

from cerberank_benchmarks.clients.closed_loop import run_clients


def test_a_client_asks_again_when_it_is_answered() -> None:
    """Each client's requests follow one another, its own traffic only, until the time is over."""
    with moody_server(patience=0) as url:
        four, six = asyncio.run(run_clients(url, [asking(4), asking(6)], seconds=2.0, seed=0))
    for arrivals, count in ((four, 4), (six, 6)):
        assert {(arrival.candidates, arrival.fate, arrival.tokens) for arrival in arrivals} == {
            (count, "answered", 10 * count)
        }
        assert len(arrivals) > 1
        assert all(a.ended <= b.ended - b.seconds for a, b in itertools.pairwise(arrivals))


def test_every_client_asks_once_however_short_the_time() -> None:
    """Each client sends at least one request, because percentiles need a value."""
    with moody_server() as url:
        ((arrival,),) = asyncio.run(run_clients(url, [asking(4)], seconds=0.0, seed=0))
    assert arrival.fate == "gave up"
