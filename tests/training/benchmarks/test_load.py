from __future__ import annotations

import pytest

from cerberank_training.benchmarks.load import summarise
from cerberank_training.benchmarks.open_loop import Arrival
from cerberank_training.benchmarks.settings import Settings


def test_goodput_counts_what_is_in_time_and_within_the_phase() -> None:
    """By hand: capacity 100 a second, 10 s; in time is 1 s + 2 x candidates / 100."""
    settings = Settings(seconds=10, grace=1, slack=2)
    arrivals = [
        Arrival(candidates=100, fate="answered", refusals=2, seconds=3.0, ended=5.0),  # just in time
        Arrival(candidates=100, fate="answered", refusals=0, seconds=3.1, ended=5.0),  # late
        Arrival(candidates=300, fate="answered", refusals=0, seconds=2.0, ended=11.0),  # in time, after the phase
        Arrival(candidates=300, fate="gave up", refusals=1, seconds=0.1, ended=9.0),
    ]
    small, large, everything = summarise(arrivals, settings=settings, capacity=100.0)
    assert (small["size"], small["in time"], small["refusals"]) == ("100", 1, 2)
    assert small["goodput / capacity"] == pytest.approx(0.1)
    assert (large["answered"], large["gave up"], large["goodput / capacity"]) == (1, 1, 0.0)
    assert everything["goodput / capacity"] == pytest.approx(0.1)
    assert everything["p50 s"] == 3.0
