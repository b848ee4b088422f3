"""The schedule of a run: which stages, which rate."""

from __future__ import annotations

import pytest

from cerberank_training.learning.settings import StudentConfig


def test_stages_are_drawn_uniformly_after_the_warm_start() -> None:
    """CT section 5.2: each stage a third of the time; the same in every process."""
    config = StudentConfig(steps=4000, final_only=0.25)
    drawn = [config.trained(step, 3) for step in range(4000)]
    assert set(drawn[:1000]) == {(2,)}
    for stage in range(3):
        assert abs(drawn[1000:].count((stage,)) - 1000) < 100
    assert drawn == [config.trained(step, 3) for step in range(4000)]


def test_the_learning_rate_is_a_triangle() -> None:
    """Up over the warm-up, down to almost nothing."""
    config = StudentConfig(steps=100, warmup=0.1)
    rates = [config.rate(step) for step in range(100)]
    assert max(rates) == 1.0
    assert rates.index(1.0) == 9
    assert rates[0] == pytest.approx(0.1)
    assert rates[-1] == pytest.approx(1 / 90)


def test_a_warm_up_may_be_a_number_of_steps() -> None:
    """CT's 4,000 of 20,000 updates are a fifth; a warm-up that is longer than the run is refused."""
    given, share = StudentConfig(steps=20_000, warmup=4000), StudentConfig(steps=20_000, warmup=0.2)
    assert all(given.rate(step) == share.rate(step) for step in range(0, 20_000, 37))
    assert given.rate(3999) == 1.0
    assert StudentConfig(steps=1).rate(0) == 1.0
    with pytest.raises(ValueError, match="warmup 4000 does not fit into steps 20"):
        StudentConfig(steps=20, warmup=4000)


def test_without_decay_the_learning_rate_stays() -> None:
    """Up over the warm-up, then 1 to the last step."""
    config = StudentConfig(steps=100, warmup=0.1, decay=False)
    rates = [config.rate(step) for step in range(100)]
    assert rates[4] == pytest.approx(0.5)
    assert set(rates[9:]) == {1.0}


def test_stages_in_turn() -> None:
    """CT section 4.3.1: another choice of the stage, after the warm start."""
    config = StudentConfig(steps=6, final_only=0.5, stages="in_turn")
    assert [config.trained(step, 3) for step in range(6)] == [(2,), (2,), (2,), (0,), (1,), (2,)]


def test_joint_training_takes_every_stage() -> None:
    """After the warm start, all stages in every step."""
    config = StudentConfig(steps=4, final_only=0.5, stages="joint")
    assert [config.trained(step, 3) for step in range(4)] == [(2,), (2,), (0, 1, 2), (0, 1, 2)]
