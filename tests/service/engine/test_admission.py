"""Who is refused, and why, at a hundred tokens a second in each of two stages."""

from __future__ import annotations

from contextlib import suppress
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.engine.admission import REFUSED_SECONDS_AT_ONCE, Admission, Offer, weight_of
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.scheduler import LEAST_SURPLUS, OVERTAKING
from cerberank_service.errors import Kind, ServiceError

STEP = 100
BOUND = 30.0


def admission(bound: float = BOUND, most: int = 10**9) -> Admission:
    """Steps of a second."""
    speeds = StageSpeeds((1.0, 1.0), STEP)
    for stage in range(2):
        speeds.observe(stage, 1000, 10.0)
    return Admission(speeds, bound, most)


def offer(
    seconds: float, *, received: float = 0.0, deadline: float = inf, priority: int = 0, request: int | None = None
) -> Offer:
    """A question that takes so long alone."""
    tokens = 50.0 * seconds
    return Offer(
        tokens=round(tokens),
        stage_tokens=(tokens, tokens),
        weight=weight_of(priority),
        received=received,
        deadline=deadline,
        request=request,
    )


def refused(busy: Admission, question: Offer, now: float = 0.0) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        busy.check(question, now)
    assert caught.value.kind is Kind.UNAVAILABLE
    return caught.value


@given(st.floats(0.01, 1e7), st.integers(0, 999), st.floats(-10.0, 10.0), st.floats(0.0, 100.0))
def test_an_idle_engine_takes_any_question(seconds: float, priority: int, deadline: float, late: float) -> None:
    """However large, unimportant or late."""
    idle = admission(bound=0.001, most=1)
    idle.check_room()
    idle.check(offer(seconds, deadline=deadline, priority=priority), late)


def test_questions_of_one_request_are_no_work_before_each_other() -> None:
    """Those of others are, for them as for anybody."""
    busy = admission(bound=8.0, most=10**9)
    for key in range(10):
        busy.enter(key, offer(1.0, request=7))
    busy.check(offer(1.0, request=7), 0.0)
    assert refused(busy, offer(1.0, request=8)).refusal
    assert refused(busy, offer(1.0)).refusal
    busy.enter(10, offer(0.5))
    assert busy.wait(offer(1.0).stage_tokens, 1.0, 7) == pytest.approx(0.5)


def test_memory_bounds_the_tokens_that_are_pending() -> None:
    """Retry-After is the time until there is room."""
    full = admission(inf, most=1000)
    full.enter(0, offer(15.0))
    full.check_room()
    full.check(offer(1e6), 0.0)
    full.enter(1, offer(10.0))
    with pytest.raises(ServiceError) as caught:
        full.check_room()
    assert (caught.value.refusal.reason, caught.value.retry_after) == ("memory", 5)
    assert refused(full, offer(0.1)).refusal == caught.value.refusal
    full.leave(0)
    full.check_room()
    assert full.tokens == 500


def test_a_question_waits_for_those_that_the_scheduler_prefers() -> None:
    """A small one for none of the large ones, but for a step and the oldest one's share meanwhile; a large one for all
    that is pending, and for no more than that.
    """
    busy = admission()
    for key in range(3):
        busy.enter(key, offer(20.0))
    assert busy.wait(offer(1.0).stage_tokens, 1.0) == pytest.approx((1.0 - LEAST_SURPLUS) / OVERTAKING + 1.0)
    assert busy.wait(offer(0.1).stage_tokens, 1.0) == pytest.approx(1.0)
    assert busy.wait(offer(100.0).stage_tokens, 1.0) == pytest.approx(60.0)
    assert busy.seconds == pytest.approx(60.0)


def test_a_tiny_backlog_is_a_short_wait() -> None:
    """Nobody waits for a full step while less than that is pending."""
    busy = admission()
    busy.enter(0, offer(0.02))
    assert busy.wait(offer(0.01).stage_tokens, 1.0) == pytest.approx(0.02)
    assert busy.wait(offer(5.0).stage_tokens, 1.0) == pytest.approx(0.02)


def test_a_question_does_not_overtake_one_that_has_less_left() -> None:
    """A question of half a second comes before one of twenty that has just begun, and after one that is nearly done."""
    busy = admission()
    busy.enter(0, offer(20.0))
    assert busy.wait(offer(0.5).stage_tokens, 1.0) == pytest.approx(1.0)
    busy.ran(0, 0, 1960)
    busy.enter(1, offer(20.0))
    assert busy.wait(offer(0.5).stage_tokens, 1.0) == pytest.approx(0.4 + (0.9 - LEAST_SURPLUS) / OVERTAKING + 1.0)


def test_a_light_question_waits_longer() -> None:
    """A tenth of the work goes before the rest at an eighth of the weight, at a sixteenth it does not."""
    busy = admission()
    busy.enter(0, offer(20.0))
    overtaking = (2.0 - LEAST_SURPLUS) / OVERTAKING + 1.0
    assert busy.wait(offer(2.0).stage_tokens, weight_of(300)) == pytest.approx(overtaking)
    assert busy.wait(offer(2.0).stage_tokens, weight_of(400)) == pytest.approx(20.0)


def test_the_past_does_not_count_once_everything_is_answered() -> None:
    """Neither answered nor abandoned questions affect later ones."""
    busy = admission()
    busy.enter(0, offer(20.0))
    busy.ran(0, 0, 1000)
    busy.leave(0)
    busy.enter(1, offer(20.0))
    busy.enter(2, offer(20.0))
    busy.leave(2)
    busy.ran(1, 0, 500)
    assert busy.wait(offer(16.0).stage_tokens, 1.0) == pytest.approx(15.0)


def test_what_cannot_reach_its_first_stage_in_time_is_refused_at_once() -> None:
    """A second of its own after one of an equal question that came before."""
    busy = admission()
    busy.enter(0, offer(1.0))
    question = offer(2.0, deadline=2.1)
    busy.check(question, 0.0)
    error = refused(busy, question, now=0.2)
    assert "2.000 seconds" in error.message
    assert (error.refusal.reason, error.refusal.seconds, error.retry_after) == ("deadline", pytest.approx(1.0), 1)


def test_the_time_in_the_queue_is_bounded() -> None:
    """From its arrival on and without its own compute; Retry-After is the time until it would be accepted."""
    busy = admission()
    busy.enter(0, offer(29.0))
    busy.check(offer(100.0), 0.9)
    error = refused(busy, offer(100.0, received=-5.0), now=-1.0)
    assert (error.refusal.reason, error.refusal.seconds, error.retry_after) == ("queue", pytest.approx(33.0), 1)
    assert "33.0 seconds, at most 30 are allowed" in error.message
    busy.enter(1, offer(11.0))
    assert refused(busy, offer(100.0)).retry_after == 10


def test_a_deadline_before_the_bound_is_all_that_counts() -> None:
    """It is answered by then with what is known; a later deadline changes nothing."""
    busy = admission()
    busy.enter(0, offer(29.0))
    refused(busy, offer(100.0, received=-2.0, deadline=128.1))
    busy.check(offer(100.0, received=-2.0, deadline=128.0), 0.0)


@given(
    st.lists(st.floats(0.01, 60.0), max_size=10),
    st.lists(st.tuples(st.floats(0.01, 600.0), st.floats(0.0, 60.0)), max_size=10),
    st.floats(0.01, 600.0),
)
def test_a_question_is_refused_only_where_the_order_of_arrival_would_refuse_it(
    pending: list[float], others: list[tuple[float, float]], seconds: float
) -> None:
    """Whatever was refused before, for the bound or for its own deadline: only what is pending counts."""
    busy = admission()
    for key, work in enumerate(pending):
        busy.enter(key, offer(work))
    for work, deadline in others:
        with suppress(ServiceError):
            busy.check(offer(work, deadline=deadline), 0.0)
    try:
        busy.check(offer(seconds), 0.0)
    except ServiceError:
        assert sum(pending) > BOUND
        assert busy.wait(offer(seconds).stage_tokens, 1.0) > BOUND
    else:
        assert busy.wait(offer(seconds).stage_tokens, 1.0) <= BOUND


def test_a_small_question_is_accepted_beside_one_that_exceeds_the_bound() -> None:
    """An idle engine accepts a question of any size, and nobody who can overtake it is refused."""
    busy = admission()
    busy.enter(0, offer(1000.0))
    for key in range(1, 6):
        busy.check(offer(1.0), 0.0)
        busy.enter(key, offer(1.0))
    refused(busy, offer(1000.0))


def test_what_has_run_is_not_waited_for() -> None:
    """The prediction falls while a question is served, and never below zero."""
    busy = admission()
    busy.enter(0, offer(20.0))
    busy.ran(0, 0, 1000)
    assert busy.seconds == pytest.approx(10.0)
    busy.ran(0, 1, 5000)
    assert busy.seconds == 0.0
    busy.ran(7, 0, 5)  # it was answered meanwhile


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.01, 60.0)), min_size=1, max_size=50))
def test_refused_questions_count_as_load_at_most_one_second_a_second(refusals: list[tuple[float, float]]) -> None:
    """However often and soon a client repeats them; a single small one counts in full."""
    busy, now, counted = admission(), 100.0, []
    for since, seconds in refusals:
        now += since
        counted.append(busy.refused_load(offer(seconds), now))
    assert counted[0] == pytest.approx(min(refusals[0][1], REFUSED_SECONDS_AT_ONCE))
    assert all(0.0 <= load <= seconds + 1e-9 for load, (_, seconds) in zip(counted, refusals, strict=True))
    assert sum(counted) <= REFUSED_SECONDS_AT_ONCE + sum(since for since, _ in refusals[1:]) + 1e-6
