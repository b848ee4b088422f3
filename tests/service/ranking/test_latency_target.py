from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.fakes import ranker_config

from cerberank_models.config import RankerConfig, TunedSchedule
from cerberank_models.drop import DropPolicy, RatioSchedule
from cerberank_models.ranking.assemble import loss_of
from cerberank_service.ranking.pipeline import choose_schedule

WHOLE = {"map": 80.0, "p@1": 70.0, "map_loss": 0.0, "map_loss_error": 0.1}
GENTLE = TunedSchedule(schedule=(0.0, 0.0), cost=1.0, metrics=WHOLE)
MIDDLE = TunedSchedule(
    schedule=(0.3, 0.3), cost=0.6, metrics={"map": 79.5, "p@1": 70.5, "map_loss": 0.6, "map_loss_error": 0.2}
)
HARSH = TunedSchedule(schedule=(0.5, 0.5), cost=0.4, metrics={"map": 78.0, "p@1": 68.0})
SET = (MIDDLE, HARSH, GENTLE)


def config_of(*tuned: TunedSchedule) -> RankerConfig:
    return ranker_config().model_copy(update={"tuned_schedules": tuned, "drop_minimum": 4})


@given(st.permutations(SET), st.floats(0.0, 3.0), st.floats(0.1, 2.0))
def test_the_most_accurate_schedule_in_time_is_taken(tuned: list[TunedSchedule], wait: float, target: float) -> None:
    """Whatever their order; the fastest when none is in time."""
    time = {entry.schedule: entry.cost + wait for entry in tuned}
    policy = choose_schedule(config_of(*tuned), 1, lambda policy: time[policy.ratios], target)
    in_time = [entry for entry in tuned if time[entry.schedule] <= target]
    expected = max(in_time, key=lambda entry: entry.cost) if in_time else HARSH
    assert policy.ratios == expected.schedule


@pytest.mark.parametrize(("keep", "minimum"), [(1, 4), (7, 7)])
def test_what_was_asked_for_and_the_checkpoint_s_minimum_stay_alive(keep: int, minimum: int) -> None:
    """The minimum applies to the chosen policy and to the policies whose time is predicted."""
    predicted: list[DropPolicy] = []

    def seconds(policy: DropPolicy) -> float:
        predicted.append(policy)
        return 1.0

    chosen = choose_schedule(config_of(*SET), keep, seconds, 0.5)
    assert chosen == RatioSchedule(HARSH.schedule, minimum)
    assert predicted == [RatioSchedule(entry.schedule, minimum) for entry in (GENTLE, MIDDLE, HARSH)]


def test_a_tuned_schedule_has_its_lexical_ratio_or_the_request_s() -> None:
    """Its time is predicted with it."""
    lexical = GENTLE.model_copy(update={"lexical_ratio": 0.4})
    for requested, ratio in ((None, 0.4), (0.0, 0.0), (0.7, 0.7)):
        policy = choose_schedule(config_of(lexical), 1, lambda policy: policy.lexical, 1.0, lexical=requested)
        assert policy == RatioSchedule(GENTLE.schedule, 4, ratio)


def test_the_loss_is_against_the_most_accurate_schedule() -> None:
    """In points by metric, not of what tuning says about its own loss; a gain is negative.

    A schedule outside the set has no known loss.
    """
    assert loss_of(SET, (0.3, 0.3)) == {"map": pytest.approx(0.5), "p@1": pytest.approx(-0.5)}
    assert loss_of(SET, (0.0, 0.0)) == {"map": 0.0, "p@1": 0.0}
    assert loss_of(SET, (0.1, 0.0)) == {}
    assert loss_of((), (0.1, 0.0)) == {}
