"""How the largest step shrinks when memory runs out, and grows again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.engine.step_limit import CALM_STEPS, LEAST_TOKENS, MOST_CALM_STEPS, StepLimit


def steps_until(limit: StepLimit, tokens: int) -> int:
    """Full steps that must fit until the limit is at least `tokens`."""
    count = 0
    while limit.tokens < tokens:
        limit.fitted(limit.tokens)
        count += 1
    return count


@given(st.integers(1, 200_000), st.lists(st.tuples(st.booleans(), st.integers(1, 200_000)), max_size=200))
def test_the_limit_stays_between_its_bounds(most: int, events: list[tuple[bool, int]]) -> None:
    """Never above the original, never below the least, whatever fits or fails."""
    limit = StepLimit(most)
    for fits, tokens in events:
        limit.fitted(tokens) if fits else limit.ran_out(tokens)
        assert min(most, LEAST_TOKENS) <= limit.tokens <= most


@given(st.integers(LEAST_TOKENS, 200_000), st.lists(st.integers(1, 400_000), max_size=20))
def test_the_original_size_comes_back(most: int, failed: list[int]) -> None:
    """However often memory ran out, a calm time brings the limit back in doublings."""
    limit = StepLimit(most)
    for tokens in failed:
        limit.ran_out(tokens)
    doublings = 1 + (most // LEAST_TOKENS).bit_length()
    assert steps_until(limit, most) <= doublings * MOST_CALM_STEPS


def test_each_failure_asks_for_twice_the_patience() -> None:
    """A size that never fits is tried less and less often."""
    limit, needed = StepLimit(8000), []
    for _ in range(8):
        limit.ran_out(8000)
        assert limit.tokens == 4000
        needed.append(steps_until(limit, 8000))
    assert needed == [min(CALM_STEPS * 2**number, MOST_CALM_STEPS) for number in range(8)]


def test_small_steps_prove_nothing() -> None:
    """Only steps of more than half of the limit count."""
    limit = StepLimit(8000)
    limit.ran_out(8000)
    for _ in range(10 * CALM_STEPS):
        limit.fitted(2000)
    assert limit.tokens == 4000


def test_a_failure_between_calm_steps_starts_the_count_anew() -> None:
    """The steps must fit one after another."""
    limit = StepLimit(8000)
    limit.ran_out(8000)
    for _ in range(CALM_STEPS - 1):
        limit.fitted(4000)
    limit.ran_out(4000)
    limit.fitted(2000)
    assert limit.tokens == 2000
