from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.engine.fairness import FairClock


@given(st.lists(st.tuples(st.integers(1, 100), st.sampled_from([1.0, 0.5, 2.0])), min_size=1, max_size=8))
def test_ends_come_in_the_order_of_work_by_weight(questions: list[tuple[int, float]]) -> None:
    """Among questions that start together, the one with the least work by weight ends first."""
    clock = FairClock()
    ends = [clock.enter(key, work, weight) for key, (work, weight) in enumerate(questions)]
    assert ends == [work / weight for work, weight in questions]


def test_time_runs_faster_with_fewer_questions() -> None:
    """Two that share get half each; once the first has ended, the other gets all."""
    clock = FairClock()
    clock.enter(0, 10.0, 1.0)
    clock.enter(1, 30.0, 1.0)
    clock.serve(20.0)
    assert clock.enter(2, 0.0, 1.0) == pytest.approx(10.0)
    clock.serve(10.0)
    assert clock.enter(3, 0.0, 1.0) == pytest.approx(20.0)


def test_an_answered_question_keeps_its_imagined_share() -> None:
    """Large questions that were answered one after another do not delay later questions."""
    clock = FairClock()
    for key in range(16):
        clock.enter(key, 100.0, 1.0)
    clock.serve(800.0)
    assert clock.enter(16, 1.0, 1.0) == pytest.approx(51.0)


def test_one_that_was_given_up_claims_nothing() -> None:
    """Its share goes to the others at once; giving up twice changes nothing."""
    clock = FairClock()
    clock.enter(0, 100.0, 1.0)
    clock.enter(1, 100.0, 1.0)
    clock.leave(0)
    clock.leave(0)
    clock.serve(10.0)
    assert clock.enter(2, 0.0, 1.0) == pytest.approx(10.0)


def test_more_work_than_was_announced_does_no_harm() -> None:
    """Time stands where the last end was."""
    clock = FairClock()
    clock.enter(0, 10.0, 1.0)
    clock.serve(1000.0)
    assert clock.enter(1, 5.0, 1.0) == pytest.approx(15.0)
    clock.clear()
    clock.serve(1.0)
