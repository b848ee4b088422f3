from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.engine.admission import OLDEST_FACTOR, Admission, weight_of
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.objective import MARGIN, RESERVE, UNLIMITED, Objective
from cerberank_service.errors import Kind, ServiceError

STEP = 100


def admission(most: int = 1000, objective: Objective = UNLIMITED) -> Admission:
    """A hundred tokens a second in each of two stages."""
    speeds = StageSpeeds((1.0, 1.0), STEP)
    for stage in range(2):
        speeds.observe(stage, 1000, 10.0)
    return Admission(most, speeds, objective)


def seconds(wanted: float) -> tuple[float, float]:
    """Tokens by stage that take so long."""
    return 50.0 * wanted, 50.0 * wanted


def enter(filled: Admission, key: int, tokens: int, *, received: float = 0.0, deadline: float = inf) -> None:
    filled.enter(key, tokens, (float(tokens), float(tokens)), 1.0, received=received, deadline=deadline)


def check(filled: Admission, tokens: int, *, now: float, received: float = 0.0, deadline: float = inf) -> None:
    filled.check_objective((float(tokens), float(tokens)), 1.0, now=now, received=received, deadline=deadline)


@given(st.integers(1, 10**9), st.integers(0, 999), st.floats(-10.0, 10.0))
def test_an_idle_engine_refuses_nothing(tokens: int, priority: int, left: float) -> None:
    """However large, unimportant or late."""
    idle = admission()
    idle.check_room(priority)
    idle.check_deadline((float(tokens), 1.0), weight_of(priority), left)
    check(admission(objective=Objective(grace=0.0, slowdown=1.0)), tokens, now=-left)


def test_the_backlog_is_bounded_in_tokens_and_its_last_half_kept_for_higher_priorities() -> None:
    """The error's Retry-After is the whole seconds until half of the backlog is done."""
    full = admission(most=1000)
    enter(full, 0, 600)
    full.check_room(0)
    full.check_room(700)
    with pytest.raises(ServiceError) as refused:
        full.check_room(999)
    assert (refused.value.kind, refused.value.retry_after) == (Kind.UNAVAILABLE, 6)
    enter(full, 1, 500)
    with pytest.raises(ServiceError):
        full.check_room(0)
    full.leave(0, answered=True)
    full.check_room(0)
    assert full.tokens == 500


def test_a_question_waits_for_those_whose_fair_ends_come_before_its_own() -> None:
    """A small one for no large one, a large one for all; both for the oldest's share and the step that runs."""
    busy = admission()
    for key in range(3):
        enter(busy, key, 1000)  # 20 seconds each
    assert busy.wait(seconds(1.0), 1.0) == pytest.approx((OLDEST_FACTOR - 1.0) * 1.0 + 1.0)
    assert busy.wait(seconds(100.0), 1.0) == pytest.approx(OLDEST_FACTOR * 60.0 + (OLDEST_FACTOR - 1.0) * 100.0 + 1.0)
    assert busy.seconds == pytest.approx(60.0)


def test_fair_ends_move_with_what_has_run() -> None:
    """A question of twelve seconds comes before one of twenty that has just begun, and after one that is far on."""
    busy = admission()
    enter(busy, 0, 1000)
    assert busy.wait(seconds(12.0), 1.0) == pytest.approx((OLDEST_FACTOR - 1.0) * 12.0 + 1.0)
    busy.ran(0, 0, 900)
    assert busy.wait(seconds(12.0), 1.0) == pytest.approx(OLDEST_FACTOR * 11.0 + (OLDEST_FACTOR - 1.0) * 12.0 + 1.0)


def test_a_light_question_waits_longer() -> None:
    """A tenth of the work goes before the rest at an eighth of the weight, at a sixteenth it does not."""
    busy = admission()
    enter(busy, 0, 1000)
    assert busy.wait(seconds(2.0), weight_of(300)) == pytest.approx((OLDEST_FACTOR - 1.0) * 2.0 + 1.0)
    assert busy.wait(seconds(2.0), weight_of(400)) == pytest.approx(
        OLDEST_FACTOR * 20.0 + (OLDEST_FACTOR - 1.0) * 2.0 + 1.0
    )


def test_the_past_does_not_count_once_everything_is_answered() -> None:
    """Neither answered nor abandoned questions affect later ones."""
    busy = admission()
    enter(busy, 0, 1000)
    busy.ran(0, 0, 1000)
    busy.leave(0, answered=True)
    enter(busy, 1, 1000)
    enter(busy, 2, 1000)
    busy.leave(2, answered=False)
    busy.ran(1, 0, 500)
    assert busy.wait(seconds(16.0), 1.0) == pytest.approx(OLDEST_FACTOR * 15.0 + (OLDEST_FACTOR - 1.0) * 16.0 + 1.0)


def test_what_cannot_reach_its_first_stage_in_time_is_refused_at_once() -> None:
    """A second of its own, one of an equal question that came before, a seventh for the oldest, and one for a step."""
    busy = admission()
    enter(busy, 0, 50)
    needed = 2 * OLDEST_FACTOR + 1.0
    busy.check_deadline((100.0, 0.0), 1.0, needed + 0.1)
    busy.check_deadline((100.0, 0.0), 1.0, inf)
    with pytest.raises(ServiceError, match=r"3\.286 seconds") as refused:
        busy.check_deadline((100.0, 0.0), 1.0, needed - 0.1)
    assert (refused.value.kind, refused.value.retry_after) == (Kind.UNAVAILABLE, 3)


def test_what_would_take_more_than_half_of_its_limit_is_refused() -> None:
    """20 seconds alone, of at most 84: when it came too long ago, and unless it has a deadline within its limit."""
    busy = admission(most=10**6, objective=Objective(grace=4.0, slowdown=4.0))
    enter(busy, 0, 10)
    spare = RESERVE * 84.0 - OLDEST_FACTOR * 20.2 - 1.0
    check(busy, 1000, now=spare - 0.1)
    with pytest.raises(ServiceError) as refused:
        check(busy, 1000, now=spare + 0.1)
    assert (refused.value.kind, refused.value.retry_after) == (Kind.UNAVAILABLE, 1)
    check(busy, 1000, now=spare + 0.1, deadline=84.0)
    with pytest.raises(ServiceError):
        check(busy, 1000, now=spare + 0.1, deadline=84.1)


def test_a_question_that_makes_another_one_late_is_refused() -> None:
    """A small one that would overtake it; a larger one may come, and so may any when the other is late anyhow."""
    busy = admission(most=10**6, objective=Objective(grace=4.0, slowdown=4.0))
    enter(busy, 0, 1000, received=0.0)
    spare = MARGIN * 84.0 - OLDEST_FACTOR * 20.0 - 1.0
    check(busy, 50, now=spare - 1.2 * OLDEST_FACTOR, received=spare)
    with pytest.raises(ServiceError):
        check(busy, 50, now=spare - 0.8 * OLDEST_FACTOR, received=spare)
    check(busy, 2000, now=spare - 0.8 * OLDEST_FACTOR, received=spare)
    check(busy, 50, now=84.0 - 20.0 + 0.1, received=64.0)


Asked = tuple[float, int, float]
"""Seconds since the question before it, tokens, and the time after its limit at which its deadline is."""


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(1, 4000), st.floats(0.1, 1e9)), max_size=20))
def test_a_deadline_beyond_the_objective_changes_nothing(asked: list[Asked]) -> None:
    """Whatever comes, the same questions are refused as without any deadline: later ones find no less room."""
    objective = Objective(grace=4.0, slowdown=4.0)
    plain, late = admission(10**9, objective), admission(10**9, objective)
    now = 0.0
    for key, (since, tokens, beyond) in enumerate(asked):
        now += since
        refused = []
        deadline = now + objective.limit(tokens / 50.0, 1.0) + beyond
        for each, due in ((plain, inf), (late, deadline)):
            try:
                check(each, tokens, now=now, received=now, deadline=due)
            except ServiceError:
                refused.append(True)
            else:
                refused.append(False)
                enter(each, key, tokens, received=now, deadline=due)
        assert refused[0] == refused[1]


def test_a_question_with_a_near_deadline_is_not_protected() -> None:
    """It is answered by then with what is known."""
    busy = admission(most=10**6, objective=Objective(grace=4.0, slowdown=4.0))
    enter(busy, 0, 1000, deadline=84.0)
    check(busy, 50, now=63.0, received=63.0)


def test_what_has_run_is_not_waited_for() -> None:
    """The prediction falls while a question is served, and never below zero."""
    busy = admission()
    enter(busy, 0, 1000)
    busy.ran(0, 0, 1000)
    assert busy.seconds == pytest.approx(10.0)
    busy.ran(0, 1, 5000)
    assert busy.seconds == 0.0
    busy.ran(7, 0, 5)  # it was answered meanwhile
