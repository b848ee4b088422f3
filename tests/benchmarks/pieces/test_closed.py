from __future__ import annotations

from cerberank_benchmarks.clients.load import Answer
from cerberank_benchmarks.pieces.closed import summarise


def test_rates_count_until_the_last_answer() -> None:
    """By hand: 10 seconds; what failed gives no candidates and no latency."""
    arrivals = [
        Answer(candidates=20, fate="answered", refusals=0, seconds=1.0, ended=1.0, tokens=1000),
        Answer(candidates=20, fate="failed", refusals=0, seconds=9.0, ended=9.0),
        Answer(candidates=200, fate="answered", refusals=0, seconds=9.0, ended=10.0, tokens=9000),
    ]
    small, large, everything = summarise(arrivals)
    assert (small["size"], small["answered"], small["failed"], small["p99 s"]) == ("20", 1, 1, 1.0)
    assert (large["candidates/s"], large["tokens/s"]) == (20.0, 900.0)
    assert (everything["candidates/s"], everything["tokens/s"], everything["p50 s"]) == (22.0, 1000.0, 5.0)
