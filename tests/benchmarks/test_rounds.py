from __future__ import annotations

from functools import partial

from cerberank_benchmarks.rounds import median_seconds


def test_what_is_compared_runs_in_turns() -> None:
    """Compared functions run in turns, so that a lasting disturbance affects all of them."""
    order: list[str] = []
    seconds = median_seconds({name: partial(order.append, name) for name in "ab"}, rounds=3, label="")
    assert order == ["a", "b"] * 3
    assert set(seconds) == {"a", "b"}
