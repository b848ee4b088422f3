from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.fakes import BYTES_A_TOKEN, FakeBackend, FakeState
from tests.service.pairs import numbered_pairs

from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_service.engine.waiting_states import LEAST_STATE_BYTES, WaitingStates, default_state_bytes

ROWS = 12
BACKEND = FakeBackend()
PAIRS = numbered_pairs(ROWS)


def rows_of(state: FakeState) -> list[int]:
    """The rows whose pairs a state holds."""
    return [int(token) - 10 for token in state.pairs.token_ids[state.pairs.offsets[:-1]]]


def state(rows: list[int]) -> FakeState:
    return FakeState(PAIRS.select(np.asarray(rows)), 1)


def hold(chunks: list[list[int]]) -> WaitingStates:
    held = WaitingStates(PAIRS.lengths)
    for rows in chunks:
        held.put(np.asarray(rows), state(rows), BACKEND)
    return held


@given(st.permutations(range(ROWS)), st.sets(st.integers(0, ROWS - 1)), st.sets(st.integers(0, ROWS - 1), min_size=1))
def test_every_row_finds_its_own_state(order: list[int], gone: set[int], asked: set[int]) -> None:
    """However the rows were cut into chunks, whichever were released, compacted or not; the others are missing."""
    for compact in (False, True):
        held = hold([order[:5], order[5:7], order[7:]])
        held.release(np.asarray(sorted(gone), dtype=np.int64))
        if compact:
            held.compact(BACKEND)
            assert held.size == BYTES_A_TOKEN * sum(row + 2 for row in set(range(ROWS)) - gone)
        found, missing = held.find(np.asarray(sorted(asked)), BACKEND)
        assert set(missing.tolist()) == asked & gone
        assert {row for rows, _ in found for row in rows.tolist()} == asked - gone
        for rows, own in found:
            assert rows_of(own) == rows.tolist()


def test_a_chunk_that_is_asked_for_as_it_is_is_not_copied() -> None:
    """The usual case: what ran together runs on together."""
    held = WaitingStates(PAIRS.lengths)
    whole = state([3, 1, 2])
    held.put(np.asarray([3, 1, 2]), whole, BACKEND)
    ((_, found),), _ = held.find(np.asarray([3, 1, 2]), BACKEND)
    assert found is whole


def test_the_state_that_is_needed_last_is_given_up() -> None:
    """Longer rows run first, so that of the shortest ones goes; its rows are then missing."""
    held = hold([[9, 8], [1, 0], [5]])
    held.evict()
    assert held.find(np.arange(ROWS), BACKEND)[1].tolist() == [0, 1, 2, 3, 4, 6, 7, 10, 11]
    held.evict()
    held.evict()
    assert held.size == 0


def test_rows_that_were_given_up_may_be_held_again() -> None:
    """After they have been run again."""
    held = hold([[1, 2], [5]])
    held.evict()
    held.release(np.asarray([1, 2]))
    held.put(np.asarray([2, 1]), state([2, 1]), BACKEND)
    found, missing = held.find(np.asarray([1, 2, 5]), BACKEND)
    assert not len(missing)
    assert sorted(row for rows, _ in found for row in rows.tolist()) == [1, 2, 5]


@pytest.mark.parametrize(
    ("total", "bound"), [(None, LEAST_STATE_BYTES), (2**30, LEAST_STATE_BYTES), (80 * 2**30, 10 * 2**30)]
)
def test_the_bound_of_states_follows_the_device(total: int | None, bound: int) -> None:
    """512 MiB on a processor and on a small GPU, an eighth of a large one's memory."""
    assert default_state_bytes(None if total is None else DeviceMemory(total=total, free=0)) == bound
