from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.service.asking import Clock

from cerberank_service.access.quota import Bucket


def test_a_minute_s_worth_may_be_taken_at_once() -> None:
    """Then the next one waits for its share of the minute."""
    clock = Clock()
    bucket = Bucket(60, clock)
    for _ in range(60):
        assert bucket.wait() == 0.0
        bucket.take(1)
    assert bucket.wait() == 1.0
    clock.now += 0.25
    assert bucket.wait() == 0.75
    clock.now += 0.75
    assert bucket.wait() == 0.0


def test_an_overdraft_is_paid_back_in_time() -> None:
    """One question may cost more than a minute's worth; the next waits for as long as that takes."""
    clock = Clock()
    bucket = Bucket(600, clock)
    bucket.take(1800)
    assert bucket.wait() == 120.1
    clock.now += 1e6
    assert bucket.wait() == 0.0
    bucket.take(600)  # no more than a minute's worth was saved up
    assert bucket.wait() > 0.0


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(1, 500)), min_size=1, max_size=30),
)
def test_over_any_time_no_more_is_taken_than_the_quota_and_one_overdraft(
    per_minute: int, wishes: list[tuple[float, int]]
) -> None:
    """A caller that waits gets at most the capacity, the refill of the time, and one overdraft."""
    clock = Clock()
    bucket, taken, largest = Bucket(per_minute, clock), 0, 0
    for pause, amount in wishes:
        clock.now += pause
        if bucket.wait() == 0.0:
            bucket.take(amount)
            taken, largest = taken + amount, max(largest, amount)
    assert taken <= per_minute + (clock.now - 100.0) * per_minute / 60.0 + largest + 1e-6
