from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.admission import Admission, weight_of
from cerberank_service.cost import StageSpeeds
from cerberank_service.errors import Kind, ServiceError

STEP = 100


def admission(most: int = 1000) -> Admission:
    """A hundred tokens a second in each of two stages."""
    speeds = StageSpeeds((1.0, 1.0))
    for stage in range(2):
        speeds.observe(stage, 1000, 10.0)
    return Admission(most, speeds)


def enter(filled: Admission, key: int, tokens: int, weight: float = 1.0) -> None:
    filled.enter(key, tokens, (float(tokens), float(tokens)), weight)


@given(st.integers(1, 10**9), st.integers(0, 999), st.floats(-10.0, 10.0))
def test_an_idle_engine_refuses_nothing(tokens: int, priority: int, left: float) -> None:
    """However large, unimportant or late."""
    idle = admission()
    idle.check_room(priority)
    idle.check_deadline((float(tokens), 1.0), weight_of(priority), left, STEP)


def test_the_backlog_is_bounded_in_tokens_and_its_last_half_kept_for_higher_priorities() -> None:
    """With whole seconds after which half of it will be gone."""
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
    full.leave(0)
    full.check_room(0)
    assert full.tokens == 500


def test_a_question_waits_for_what_others_get_beside_it() -> None:
    """A small one for its own size of each, a large one for all of them; both for the step that runs."""
    busy = admission()
    for key in range(3):
        enter(busy, key, 1000)  # 20 seconds each
    assert busy.wait(1.0, 1.0, STEP) == pytest.approx(3 * 1.0 + 1.0)
    assert busy.wait(100.0, 1.0, STEP) == pytest.approx(3 * 20.0 + 1.0)
    assert busy.seconds == pytest.approx(60.0)


def test_a_light_question_waits_longer_and_waits_less_for_light_ones() -> None:
    """By the ratio of the weights."""
    busy = admission()
    enter(busy, 0, 1000, weight=weight_of(100))
    assert busy.wait(1.0, 1.0, STEP) == pytest.approx(0.5 + 1.0)
    assert busy.wait(1.0, weight_of(200), STEP) == pytest.approx(2.0 + 1.0)


def test_what_cannot_reach_its_first_stage_in_time_is_refused_at_once() -> None:
    """The wait is a second for the other question's share, a second for its step, and a second of its own."""
    busy = admission()
    enter(busy, 0, 1000)
    busy.check_deadline((100.0, 0.0), 1.0, 3.1, STEP)
    busy.check_deadline((100.0, 0.0), 1.0, None, STEP)
    with pytest.raises(ServiceError, match=r"3\.000 seconds") as refused:
        busy.check_deadline((100.0, 0.0), 1.0, 2.9, STEP)
    assert (refused.value.kind, refused.value.retry_after) == (Kind.UNAVAILABLE, 2)


def test_what_has_run_is_not_waited_for() -> None:
    """The prediction falls while a question is served, and never below zero."""
    busy = admission()
    enter(busy, 0, 1000)
    busy.ran(0, 0, 1000)
    assert busy.seconds == pytest.approx(10.0)
    busy.ran(0, 1, 5000)
    assert busy.seconds == 0.0
    busy.ran(7, 0, 5)  # it was answered meanwhile
