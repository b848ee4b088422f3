from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.slo import Schedule, choose, loss_of


@dataclass(frozen=True)
class Tuned:
    schedule: Schedule
    cost: float
    metrics: Mapping[str, float]


GENTLE = Tuned((0.0, 0.0), 1.0, {"map": 80.0, "p@1": 70.0})
MIDDLE = Tuned((0.3, 0.3), 0.6, {"map": 79.5, "p@1": 70.5})
HARSH = Tuned((0.5, 0.5), 0.4, {"map": 78.0, "p@1": 68.0})
SET = (MIDDLE, HARSH, GENTLE)


@given(st.permutations(SET), st.floats(0.0, 3.0), st.floats(0.1, 2.0))
def test_the_gentlest_schedule_that_is_in_time_is_taken(tuned: list[Tuned], wait: float, target: float) -> None:
    """Whatever their order; the fastest when none is in time, and it says so."""
    time = {entry.schedule: entry.cost + wait for entry in tuned}
    choice = choose(tuned, time.__getitem__, target)
    in_time = [entry for entry in tuned if time[entry.schedule] <= target]
    assert choice.in_time == bool(in_time)
    expected = max(in_time, key=lambda entry: entry.cost) if in_time else HARSH
    assert choice.schedule == expected.schedule
    assert choice.loss == loss_of(tuned, expected.schedule)


def test_the_loss_is_against_the_gentlest_schedule() -> None:
    """In points by metric; a gain is negative, and a schedule outside the set has no known loss."""
    assert loss_of(SET, (0.3, 0.3)) == {"map": pytest.approx(0.5), "p@1": pytest.approx(-0.5)}
    assert loss_of(SET, (0.0, 0.0)) == {"map": 0.0, "p@1": 0.0}
    assert loss_of(SET, (0.1, 0.0)) == {}
    assert loss_of((), (0.1, 0.0)) == {}


def test_there_must_be_something_to_choose_from() -> None:
    """The caller falls back on the checkpoint's schedule."""
    with pytest.raises(ValueError, match="no schedule"):
        choose((), lambda schedule: 0.0, 1.0)
