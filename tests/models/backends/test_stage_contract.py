"""The figures of every backend beside scores: its counts, the bytes of states, the memory of its device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.bounds import PROBABILITIES
from tests.tiny import random_pairs, random_ranker

from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Backend
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.folder import read_checkpoint

LENGTHS = [5, 30, 3, 12, 9]
WIDTH = random_ranker().config.transformer.hidden_size


@pytest.fixture(scope="module", params=["torch", "onnx"])
def backend(request: pytest.FixtureRequest, tiny_checkpoint: Path) -> Backend[Any]:
    return open_backend(read_checkpoint(tiny_checkpoint), kind=request.param, precision="fp32", threads=1)


def after_a_stage(backend: Backend[Any]) -> Any:
    return backend.run(backend.start(random_pairs(LENGTHS)), 0).state


def test_survivors_score_as_if_nobody_was_dropped(backend: Backend[Any]) -> None:
    """A range of rows, and rows in another order, selected before stage 0 and after it."""
    whole = backend.run(after_a_stage(backend), 1).scores
    for rows in (np.arange(1, 4), np.array([4]), np.arange(5), np.array([4, 0, 2])):
        state = backend.select(after_a_stage(backend), rows)
        assert np.abs(backend.run(state, 1).scores - whole[rows]).max() <= PROBABILITIES
        started = backend.select(backend.start(random_pairs(LENGTHS)), rows)
        assert np.abs(backend.run(backend.run(started, 0).state, 1).scores - whole[rows]).max() <= PROBABILITIES


def test_a_state_takes_the_bytes_of_its_own_tokens(backend: Backend[Any]) -> None:
    """Nothing for token ids; four bytes a number for hidden states, of the selected pairs alone."""
    state = after_a_stage(backend)
    assert backend.state_bytes(backend.start(random_pairs(LENGTHS))) == 0
    assert backend.state_bytes(state) == 4 * WIDTH * sum(LENGTHS)
    for rows in (np.array([1, 2]), np.array([3, 1])):
        assert backend.state_bytes(backend.select(state, rows)) == 4 * WIDTH * sum(LENGTHS[row] for row in rows)


def test_a_slice_does_not_keep_the_whole_state(tiny_checkpoint: Path) -> None:
    """A part's storage is as large as the part, so that dropped candidates' memory is free."""
    torch_backend = TorchBackend.from_checkpoint(read_checkpoint(tiny_checkpoint))
    state = torch_backend.select(after_a_stage(torch_backend), np.array([0, 1]))
    assert state.hidden.untyped_storage().nbytes() == torch_backend.state_bytes(state)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_takes_half_of_the_bytes(precision: str) -> None:
    """The bytes of a state follow the precision in which it is kept."""
    half = TorchBackend(random_ranker(), precision=precision)
    assert half.state_bytes(after_a_stage(half)) == 2 * WIDTH * sum(LENGTHS)
