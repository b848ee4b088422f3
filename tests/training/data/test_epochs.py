"""The order of an epoch follows from seed and epoch alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_training.data.epochs import EpochOrder


@given(items=st.integers(1, 30), size=st.integers(1, 7), start=st.integers(0, 9), compact=st.booleans())
def test_every_item_comes_once_an_epoch_wherever_a_run_begins(items: int, size: int, start: int, compact: bool) -> None:
    """Three epochs, whatever the size of a step; steps are the same in any order, and in a process that has resumed."""
    once = EpochOrder(items, seed=5, compact=compact)
    steps = [once.step(step, size) for step in range(-(-3 * items // size))]
    drawn = [item for step in steps for item in step]
    for epoch in range(3):
        assert sorted(drawn[epoch * items : (epoch + 1) * items]) == list(range(items))
    assert [once.step(step, size) for step in reversed(range(len(steps)))] == steps[::-1]
    resumed = EpochOrder(items, seed=5, compact=compact)
    assert [resumed.step(step, size) for step in range(start, len(steps))] == steps[start:]


@pytest.mark.parametrize("compact", [False, True])
def test_epochs_and_seeds_have_orders_of_their_own(compact: bool) -> None:
    """Two epochs or two seeds agree on 25 items with probability 1 / 25!."""
    orders = [EpochOrder(25, seed=seed, compact=compact).step(epoch, 25) for seed in (1, 2) for epoch in (0, 1)]
    assert len(set(map(tuple, orders))) == 4
