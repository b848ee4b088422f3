from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.engine.cost import GUESS, LEAST_SHARE, MEMORY_TOKENS, StageSpeeds


def test_the_guess_is_shared_out_by_work_until_something_is_measured() -> None:
    """A prediction before the first measurement is cautious, not zero."""
    speeds = StageSpeeds((1.0, 3.0))
    assert speeds.seconds((1000, 1000)) == pytest.approx(0.1)
    assert speeds.seconds_per_token[1] == 3 * speeds.seconds_per_token[0]


def test_a_stage_without_a_layer_is_not_guessed_to_be_free() -> None:
    """Its heads are called all the same; the other stages' guesses stay what they are."""
    speeds = StageSpeeds((2.0, 2.0, 0.0))
    assert speeds.seconds_per_token == pytest.approx([GUESS / 2, GUESS / 2, GUESS * LEAST_SHARE])
    assert speeds.seconds((0, 0, 1000)) > 0.0


@given(st.floats(1e-7, 1e-2), st.floats(1e-7, 1e-2), st.integers(2_000, 20_000))
def test_what_is_measured_follows_a_change(before: float, after: float, tokens: int) -> None:
    """After ten half-lives the old speed has all but vanished, whatever the batches were."""
    speeds = StageSpeeds((1.0,))
    speeds.observe(0, tokens, tokens * before)
    assert speeds.seconds_per_token[0] == pytest.approx(before)
    for _ in range(1 + 10 * MEMORY_TOKENS // tokens):
        speeds.observe(0, tokens, tokens * after)
    assert speeds.seconds_per_token[0] == pytest.approx(after, rel=0.01, abs=before / 900)


def test_a_tiny_slow_batch_does_not_mislead() -> None:
    """Batches count by their tokens: the overhead of one pair is not the speed of thousands."""
    speeds = StageSpeeds((1.0,))
    speeds.observe(0, 50_000, 1.0)
    speeds.observe(0, 10, 0.01)
    assert speeds.seconds_per_token[0] == pytest.approx(2e-5, rel=0.02)


def test_the_longest_step_is_that_of_the_slowest_stage() -> None:
    """The slowest step bounds how long a new question waits before it can start."""
    speeds = StageSpeeds((1.0, 1.0))
    speeds.observe(0, 100, 1.0)
    speeds.observe(1, 100, 2.0)
    assert speeds.longest_step(50) == pytest.approx(1.0)
