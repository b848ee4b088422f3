from __future__ import annotations

import pytest

from cerberank_benchmarks.clients.load import Answer
from cerberank_benchmarks.pieces.fairness import STEP_TOKENS, summarise


def answered(candidates: int, seconds: float, *, ended: float, tokens: int = 0) -> Answer:
    return Answer(candidates=candidates, fate="answered", refusals=0, seconds=seconds, ended=ended, tokens=tokens)


def test_a_wait_is_counted_in_steps_of_the_large_ones_rate() -> None:
    """By hand: two large clients run four steps in two seconds, so a wait of half a second is one step."""
    alone = [[answered(20, 0.1, ended=1.0)] * 3]
    large = [answered(5000, 2.0, ended=2.0, tokens=2 * STEP_TOKENS)]
    beside = [[answered(20, 0.6, ended=1.0)] * 3, large, large]
    first, second = summarise({0: alone, 2: beside})
    assert first["wait, steps"] == 0
    assert (second["large clients"], second["small questions"]) == (2, 3)
    assert second["wait, steps"] == pytest.approx(1.0)
