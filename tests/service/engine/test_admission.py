"""Who is refused, and why, at a hundred tokens a second in each of two stages."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.engine.admission import MEMORY_SECONDS, Admission, Offer, weight_of
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.scheduler import OLDEST_AFTER
from cerberank_service.errors import Kind, ServiceError

STEP = 100
BOUND = 30.0


def admission(bound: float = BOUND, most: int = 10**9) -> Admission:
    """Steps of a second."""
    speeds = StageSpeeds((1.0, 1.0), STEP)
    for stage in range(2):
        speeds.observe(stage, 1000, 10.0)
    return Admission(speeds, bound, most)


def offer(seconds: float, *, received: float = 0.0, deadline: float = inf, priority: int = 0) -> Offer:
    """A question that takes so long alone."""
    tokens = 50.0 * seconds
    return Offer(
        tokens=round(tokens),
        stage_tokens=(tokens, tokens),
        weight=weight_of(priority),
        received=received,
        deadline=deadline,
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


def test_memory_bounds_the_tokens_that_are_pending() -> None:
    """Retry-After is the time until there is room."""
    full = admission(inf, most=1000)
    full.enter(0, offer(15.0))
    full.check_room()
    full.check(offer(1e6), 0.0)
    full.enter(1, offer(10.0))
    with pytest.raises(ServiceError) as caught:
        full.check_room()
    assert caught.value.refusal is not None
    assert (caught.value.refusal.reason, caught.value.retry_after) == ("memory", 5)
    assert refused(full, offer(0.1)).refusal == caught.value.refusal
    full.leave(0, answered=True)
    full.check_room()
    assert full.tokens == 500


def test_a_question_waits_for_those_whose_fair_ends_come_before_its_own() -> None:
    """A small one for none of the large ones, but for the step that runs and the oldest one's half; a large one for
    all that is pending, and for no more than that.
    """
    busy = admission()
    for key in range(3):
        busy.enter(key, offer(20.0))
    assert busy.wait(offer(1.0).stage_tokens, 1.0) == pytest.approx(1.0 / OLDEST_AFTER + 1.0)
    assert busy.wait(offer(100.0).stage_tokens, 1.0) == pytest.approx(60.0)
    assert busy.seconds == pytest.approx(60.0)


def test_a_tiny_backlog_is_a_short_wait() -> None:
    """Nobody waits for a full step while less than that is pending."""
    busy = admission()
    busy.enter(0, offer(0.02))
    assert busy.wait(offer(0.01).stage_tokens, 1.0) == pytest.approx(0.02)
    assert busy.wait(offer(5.0).stage_tokens, 1.0) == pytest.approx(0.02)


def test_fair_ends_move_with_what_has_run() -> None:
    """A question of twelve seconds comes before one of twenty that has just begun, and after one that is far on."""
    busy = admission()
    busy.enter(0, offer(20.0))
    assert busy.wait(offer(12.0).stage_tokens, 1.0) == pytest.approx(12.0 / OLDEST_AFTER + 1.0)
    busy.ran(0, 0, 900)
    assert busy.wait(offer(12.0).stage_tokens, 1.0) == pytest.approx(11.0)


def test_a_light_question_waits_longer() -> None:
    """A tenth of the work goes before the rest at an eighth of the weight, at a sixteenth it does not."""
    busy = admission()
    busy.enter(0, offer(20.0))
    assert busy.wait(offer(2.0).stage_tokens, weight_of(300)) == pytest.approx(2.0 / OLDEST_AFTER + 1.0)
    assert busy.wait(offer(2.0).stage_tokens, weight_of(400)) == pytest.approx(20.0)


def test_the_past_does_not_count_once_everything_is_answered() -> None:
    """Neither answered nor abandoned questions affect later ones."""
    busy = admission()
    busy.enter(0, offer(20.0))
    busy.ran(0, 0, 1000)
    busy.leave(0, answered=True)
    busy.enter(1, offer(20.0))
    busy.enter(2, offer(20.0))
    busy.leave(2, answered=False)
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
    assert error.refusal is not None
    assert (error.refusal.reason, error.refusal.seconds, error.retry_after) == ("deadline", pytest.approx(1.0), 1)


def test_the_time_in_the_queue_is_bounded() -> None:
    """From its arrival on and without its own compute; Retry-After is the time until it would be accepted."""
    busy = admission()
    busy.enter(0, offer(29.0))
    busy.check(offer(100.0), 0.9)
    error = refused(busy, offer(100.0, received=-5.0), now=-1.0)
    assert error.refusal is not None
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


@given(st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.01, 60.0)), max_size=20))
def test_what_waits_shorter_than_the_bound_is_accepted_while_nothing_is_refused(
    work: list[tuple[float, float]],
) -> None:
    """The wait that is predicted from what is pending decides alone, until the first refusal."""
    busy, now = admission(), 0.0
    for key, (since, seconds) in enumerate(work):
        now += since
        question = offer(seconds, received=now)
        if busy.wait(question.stage_tokens, 1.0) > BOUND:
            refused(busy, question, now)
            return
        busy.check(question, now)
        busy.enter(key, question)


def test_while_much_is_refused_questions_count_the_smaller_ones_that_will_overtake_them() -> None:
    """Up to twice the time; equally large ones do not overtake; a minute after the last refusal it is over."""
    busy = admission()
    busy.check(offer(14.0), 0.0)
    busy.enter(0, offer(14.0))
    busy.check(offer(10.0), 0.0)  # 24 seconds were accepted
    busy.enter(1, offer(20.0))
    for _ in range(3):
        error = refused(busy, offer(40.0))
    assert error.refusal is not None
    assert error.refusal.seconds == pytest.approx(34.0 + 74.0)
    busy.leave(1, answered=False)
    assert refused(busy, offer(20.0)).refusal is not None  # 14 + 14 + 20 seconds
    busy.check(offer(10.0), 0.0)
    later = MEMORY_SECONDS * 8
    busy.check(offer(20.0, received=later), later)


@given(st.floats(1.0, 20.0), st.floats(0.85, 1.0))
def test_questions_of_about_the_same_cost_do_not_overtake_each_other(seconds: float, smaller: float) -> None:
    """However much is refused, the wait of one is that of the questions before it, wherever its cost lies."""
    busy = admission()
    for key in range(round(20 * BOUND / seconds)):
        busy.enter(key, offer(0.1 * seconds))  # these end before both
    expected = refused(busy, offer(seconds)).refusal
    for _ in range(200):
        refused(busy, offer(smaller * seconds))
    assert refused(busy, offer(seconds)).refusal == expected


def test_what_has_run_is_not_waited_for() -> None:
    """The prediction falls while a question is served, and never below zero."""
    busy = admission()
    busy.enter(0, offer(20.0))
    busy.ran(0, 0, 1000)
    assert busy.seconds == pytest.approx(10.0)
    busy.ran(0, 1, 5000)
    assert busy.seconds == 0.0
    busy.ran(7, 0, 5)  # it was answered meanwhile
