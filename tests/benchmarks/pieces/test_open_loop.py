from __future__ import annotations

import pytest

from cerberank_benchmarks.clients.load import Answer
from cerberank_benchmarks.pieces.open_loop import summarise
from cerberank_benchmarks.settings import BenchmarkSettings


def test_goodput_counts_what_is_in_time_until_the_last_answer() -> None:
    """By hand: capacity 100 a second, 10 s whose last answer comes after 16; in time is 2 s beyond n / 100."""
    settings = BenchmarkSettings(seconds=10, queue_seconds=2)
    arrivals = [
        Answer(candidates=100, fate="answered", refusals=2, seconds=3.0, ended=5.0),  # just in time
        Answer(candidates=100, fate="answered", refusals=0, seconds=3.6, ended=5.0),  # late
        Answer(candidates=300, fate="answered", refusals=0, seconds=2.0, ended=16.0),  # in time, after the phase
        Answer(candidates=300, fate="gave up", refusals=1, seconds=0.1, ended=9.0),
    ]
    small, large, everything = summarise(arrivals, settings=settings, capacity=100.0)
    assert (small["size"], small["in time"], small["refusals"]) == ("100", 1, 2)
    assert small["goodput / capacity"] == pytest.approx(100 / 16 / 100)
    assert small["p99 / limit"] == pytest.approx(1.3, abs=0.01)
    assert (large["answered"], large["gave up"]) == (1, 1)
    assert everything["goodput / capacity"] == pytest.approx(400 / 16 / 100)
    assert everything["p50 s"] == 3.0
