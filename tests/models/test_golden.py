"""The golden check: recorded scores, and half precision against fp32's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.altered import Altered

from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Backend, probability
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.golden import CLEAR_GAP, HALF_TOLERANCE, GoldenMismatchError, check_golden, half_mismatch


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return read_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="module")
def backend(checkpoint: Checkpoint) -> Backend[Any]:
    return open_backend(checkpoint, precision="fp32")


def moved(inner: Backend[Any], by: float) -> Altered:
    """A backend whose scores are those of `inner`, each moved `by`."""
    return Altered(inner, lambda stage, scores: scores + by)


def given_scores(inner: Backend[Any], scores: Sequence[float]) -> Altered:
    """A backend that gives `scores` at every stage."""
    return Altered(inner, lambda stage, computed: np.asarray(scores))


def with_scores(checkpoint: Checkpoint, *precisions: str) -> Checkpoint:
    """The checkpoint with golden scores of these precisions alone."""
    golden = tuple(
        question.model_copy(
            update={
                "scores": {name: question.scores[name] for name in precisions},
                "tolerance": {name: question.tolerance[name] for name in precisions},
            }
        )
        for question in checkpoint.golden
    )
    return replace(checkpoint, golden=golden)


def test_another_models_scores_are_noticed(checkpoint: Checkpoint, backend: Backend[Any]) -> None:
    """Scores that lie outside of the recorded precision's tolerance fail the golden check."""
    with pytest.raises(GoldenMismatchError, match="differ"):
        check_golden(moved(backend, by=0.01), checkpoint, "fp32")


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_is_checked_against_fp32(checkpoint: Checkpoint, precision: str) -> None:
    """Torch passes without scores of its own, also where fp32's are all that is recorded; shifted scores do not."""
    half = open_backend(checkpoint, kind="torch", precision=precision)
    check_golden(half, checkpoint, precision)
    check_golden(half, with_scores(checkpoint, "fp32"), precision)
    tolerance = HALF_TOLERANCE[precision]
    with pytest.raises(GoldenMismatchError, match=f"more than {tolerance:g}"):
        check_golden(moved(half, by=1.5 * tolerance), checkpoint, precision)


@pytest.mark.parametrize(
    ("recorded", "precision", "message"),
    [
        ("int8", "bf16", "no bf16 or fp32 scores: `cerberank export FOLDER OUT` records"),
        ("int8", "fp16", "no fp16 or fp32 scores: `cerberank export FOLDER OUT` records"),
        ("fp32", "int8", "no int8 scores: `cerberank export FOLDER OUT --forms int8` records"),
    ],
)
def test_nothing_to_compare_with_names_the_command(
    checkpoint: Checkpoint, backend: Backend[Any], recorded: str, precision: str, message: str
) -> None:
    """A checkpoint without the scores that a precision needs is refused with what makes them."""
    with pytest.raises(GoldenMismatchError, match=message):
        check_golden(backend, with_scores(checkpoint, recorded), precision)


def test_a_clear_order_that_is_lost_is_a_mismatch(checkpoint: Checkpoint, backend: Backend[Any]) -> None:
    """Scores within the tolerance, whose clearly separated candidates swap: the better one is named."""
    first = checkpoint.golden[0]
    recorded = tuple(0.001 if index else 0.01 for index in range(len(first.candidates)))
    golden = first.model_copy(update={"scores": {"fp32": recorded}, "tolerance": {"fp32": 0.001}})
    tied = given_scores(backend, scores=[0.005] * len(recorded))
    with pytest.raises(GoldenMismatchError, match=r"candidate 0 no longer .* candidate 1: 0.005 and 0.005, 0.01 and"):
        check_golden(tied, replace(checkpoint, golden=(golden,)), "fp16")


LOGITS = st.lists(st.floats(-60.0, 60.0), min_size=1, max_size=12)


@given(logits=LOGITS, seed=st.integers(0, 2**32 - 1))
def test_small_errors_keep_every_clear_order(logits: list[float], seed: int) -> None:
    """Logits that move by less than half of the gap are not a mismatch, however confident or alike candidates are."""
    exact = np.asarray(logits)
    moved = exact + np.random.default_rng(seed).uniform(-0.49 * CLEAR_GAP, 0.49 * CLEAR_GAP, len(exact))
    assert half_mismatch(probability(exact), probability(moved)) == ""


@pytest.mark.parametrize(
    ("expected", "got", "agrees"),
    [
        ([0.0, 0.0], [0.0, 0.0], True),  # saturated alike: there is no order to keep
        ([1.0, 1.0 - 1e-15], [1.0, 1.0], True),
        ([0.5], [0.9], True),  # one candidate has no order
        ([1.0, 0.0], [1.0, 0.0], True),
        ([1.0, 0.0], [0.5, 0.5], False),
        ([0.9, 0.1], [np.nan, 0.1], False),
        ([0.9, 0.1], [0.9, np.nan], False),
        ([0.6, 0.4], [0.4, 0.6], True),  # not clearly separated
    ],
)
def test_orders_at_the_edges(expected: list[float], got: list[float], agrees: bool) -> None:
    """Saturated scores, one candidate, NaN."""
    assert (half_mismatch(np.asarray(expected), np.asarray(got)) == "") == agrees
