"""Predictions from batches that took a fixed time and a time for each token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.engine.cost import (
    GUESS,
    LEAST_SHARE,
    LEAST_SLOPE,
    MEMORY_BATCHES,
    RECENT_BATCHES,
    StageSpeeds,
)

sizes = st.lists(st.integers(10, 60_000), min_size=5, max_size=60)


def observed(tokens: list[int], fixed: float, slope: float, step_tokens: int = 8192) -> StageSpeeds:
    """One stage that has seen these batches."""
    speeds = StageSpeeds((1.0,), step_tokens)
    for each in tokens:
        speeds.observe(0, each, fixed + slope * each)
    return speeds


def test_the_guess_is_shared_out_by_work_until_something_is_measured() -> None:
    """A prediction before the first measurement is cautious, not zero."""
    speeds = StageSpeeds((1.0, 3.0))
    assert speeds.alone((1000, 1000)) == pytest.approx(0.1)
    assert speeds.seconds_per_token[1] == 3 * speeds.seconds_per_token[0]
    assert speeds.fixed_seconds == [0.0, 0.0]


def test_a_stage_without_a_layer_is_not_guessed_to_be_free() -> None:
    """Its heads are called all the same; the other stages' guesses stay what they are."""
    speeds = StageSpeeds((2.0, 2.0, 0.0))
    assert speeds.seconds_per_token == pytest.approx([GUESS / 2, GUESS / 2, GUESS * LEAST_SHARE])
    assert speeds.alone((0, 0, 1000)) > 0.0


@given(sizes, st.floats(1e-4, 1e-2), st.floats(1e-7, 1e-4))
def test_both_parts_are_found(tokens: list[int], fixed: float, slope: float) -> None:
    """From batches of two very different sizes among others, unless nearly everything is fixed."""
    speeds = observed([*tokens, 100, 10_000, 100, 10_000], fixed, slope)
    bounded = slope < 2 * LEAST_SLOPE * (fixed / 10 + slope)
    assert bounded or speeds.fixed_seconds[0] == pytest.approx(fixed, rel=0.01)
    assert bounded or speeds.seconds_per_token[0] == pytest.approx(slope, rel=0.01)


@given(st.lists(st.tuples(st.integers(1, 60_000), st.floats(0.0, 10.0)), min_size=1, max_size=60))
def test_no_part_is_negative_and_the_predictions_add_up(batches: list[tuple[int, float]]) -> None:
    """After one batch, whatever it took, that batch is predicted exactly."""
    speeds, seconds, predicted = StageSpeeds((1.0,)), 0.0, 0.0
    for tokens, took in batches:
        speeds.observe(0, tokens, took)
    for age, (tokens, took) in enumerate(reversed(batches)):
        weight = 0.5 ** (age / MEMORY_BATCHES)
        seconds += weight * took
        predicted += weight * (speeds.fixed_seconds[0] + tokens * speeds.seconds_per_token[0])
    assert speeds.fixed_seconds[0] >= 0.0
    assert speeds.seconds_per_token[0] >= 0.0
    if len(batches) == 1:
        assert predicted == pytest.approx(seconds, rel=1e-6, abs=1e-9)


@given(st.sampled_from([0.5, 2.0, 5.0]), st.integers(500, 20_000))
def test_a_neighbour_that_comes_or_goes_is_followed_within_a_few_batches(factor: float, tokens: int) -> None:
    """In every stage, whichever runs; one slow batch alone changes next to nothing."""
    speeds = StageSpeeds((1.0, 1.0))
    for _ in range(200):
        for stage in range(2):
            speeds.observe(stage, tokens, 1e-5 * tokens)
    speeds.observe(0, tokens, 100e-5 * tokens)
    assert speeds.alone((0.0, tokens)) == pytest.approx(1e-5 * tokens, rel=0.01)
    for _ in range(200):
        speeds.observe(0, tokens, 1e-5 * tokens)
    for _ in range(RECENT_BATCHES):
        speeds.observe(0, tokens, factor * 1e-5 * tokens)
    assert speeds.alone((0.0, tokens)) == pytest.approx(factor * 1e-5 * tokens, rel=0.25)
    assert speeds.alone((tokens, 0.0)) == pytest.approx(factor * 1e-5 * tokens, rel=0.25)


@given(sizes, st.floats(0.0, 1e-2), st.floats(1e-7, 1e-4), st.integers(1, 50_000), st.integers(1, 50_000))
def test_more_tokens_never_take_less_time(tokens: list[int], fixed: float, slope: float, one: int, two: int) -> None:
    """Alone or in a backlog; and in full steps a question takes no longer than alone."""
    speeds, (less, more) = observed(tokens, fixed, slope), sorted((one, two))
    assert speeds.alone((less,)) <= speeds.alone((more,))
    assert speeds.shared((less,)) <= speeds.shared((more,))
    assert speeds.shared((more,)) <= speeds.alone((more,)) * (1 + 1e-9)
    assert speeds.alone((0,)) == speeds.shared((0,)) == 0.0


def test_batches_that_are_alike_do_not_tell_the_parts_apart() -> None:
    """Then all of the time counts by the tokens; once both parts were known, neither is forgotten."""
    speeds = observed([1000, 1010, 990, 1000], 1e-3, 1e-6)
    assert speeds.fixed_seconds == [0.0]
    assert speeds.seconds_per_token[0] == pytest.approx(2e-6, rel=0.01)
    speeds = observed([100, 10_000] * 20, 1e-3, 1e-6)
    for _ in range(20 * MEMORY_BATCHES):
        speeds.observe(0, 5000, 2 * (1e-3 + 5e-3))
    assert speeds.fixed_seconds[0] > 5e-4
    assert speeds.alone((5000,)) == pytest.approx(12e-3, rel=0.01)


def test_a_tiny_slow_batch_does_not_mislead() -> None:
    """The overhead of one pair is not the speed of thousands."""
    for tokens in ([50_000], [50_000, 40_000, 30_000]):
        speeds = observed(tokens, 0.0, 2e-5)
        speeds.observe(0, 10, 0.01)
        assert speeds.seconds_per_token[0] == pytest.approx(2e-5, rel=0.02)


def test_the_longest_step_is_that_of_the_slowest_stage() -> None:
    """The slowest full step bounds how long a new question waits before it can start."""
    speeds = StageSpeeds((1.0, 1.0), 50)
    speeds.observe(0, 100, 1.0)
    speeds.observe(1, 100, 2.0)
    assert speeds.longest_step() == pytest.approx(1.0)
    assert observed([100, 10_000] * 5, 1e-3, 1e-6, 5000).longest_step() == pytest.approx(6e-3)


def test_a_question_pays_for_the_steps_that_it_needs() -> None:
    """Alone for whole ones, in a backlog for its share."""
    speeds = observed([100, 10_000] * 5, 1e-3, 1e-6, 5000)
    assert speeds.alone((12_000.0,)) == pytest.approx(3e-3 + 12e-3)
    assert speeds.shared((12_000.0,)) == pytest.approx(2.4e-3 + 12e-3)


def test_the_tokens_of_a_short_step() -> None:
    """The tokens that fit beside the fixed part; none if that alone takes longer."""
    speeds = observed([100, 10_000] * 5, 1e-3, 1e-6)
    assert speeds.tokens_within(5e-3) == pytest.approx(4000, abs=2)
    assert speeds.tokens_within(5e-4) == 0
