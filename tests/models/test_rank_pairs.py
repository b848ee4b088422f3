from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.margin import Margin
from tests.models.altered import Altered
from tests.tiny import random_pairs, random_ranker

from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Backend, BackendCounts, Scores, StageOutput
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.drop import RatioSchedule, drop_count
from cerberank_models.encoding import EncodedPairs
from cerberank_models.rank_pairs import NonFiniteScoreError, rank_pairs


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return read_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="module")
def backend(checkpoint: Checkpoint) -> Backend[Any]:
    return open_backend(checkpoint, precision="fp32")


def broken_scores(stage: int, scores: Scores) -> Scores:
    """The scores of a backend whose second stage gives NaN."""
    if stage == 1:
        scores[0] = np.nan
    return scores


class Table:
    """A backend that reads scores `[candidates, 3 stages]` from a table; its states are the alive rows."""

    device_memory = None

    def __init__(self, table: NDArray[np.float64]) -> None:
        self.table, self.config, self.counts = table, random_ranker().config, BackendCounts()
        self.precision = "fp32"
        self.seen: list[list[int]] = []

    def start(self, pairs: EncodedPairs) -> NDArray[np.int64]:
        return np.arange(len(pairs))

    def run(self, state: NDArray[np.int64], stage: int) -> StageOutput[NDArray[np.int64]]:
        self.seen.append(state.tolist())
        scores = self.table[state, stage]
        heads = np.repeat(scores[:, None], 3, axis=1) if stage == 2 else None
        return StageOutput(state=state, scores=scores, head_scores=heads)

    def select(self, state: NDArray[np.int64], rows: NDArray[np.integer]) -> NDArray[np.int64]:
        return state[rows]

    def concat(self, states: Any) -> NDArray[np.int64]:
        return np.concatenate(states)

    def state_bytes(self, state: NDArray[np.int64]) -> int:
        return state.nbytes

    def free_memory(self) -> None:
        raise AssertionError("only the engine frees memory")

    def prepare(self, step_tokens: int) -> None:
        raise AssertionError("only the service chooses the tokens of a step")


@given(
    rows=st.lists(st.tuples(*[st.sampled_from([0.1, 0.2, 0.5, 0.9])] * 3), min_size=1, max_size=25),
    schedule=st.tuples(*[st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9])] * 2),
    minimum=st.integers(1, 5),
)
def test_every_candidate_keeps_its_own_scores(
    rows: list[tuple[float, ...]], schedule: tuple[float, ...], minimum: int
) -> None:
    """Stages run, scores and order equal those of lists in plain Python."""
    backend = Table(np.array(rows))
    ranking = rank_pairs(backend, random_pairs([4] * len(rows)), RatioSchedule(schedule, minimum))

    alive, runs, expected = list(range(len(rows))), [], [(0, 0.0)] * len(rows)
    for stage, alpha in enumerate([*schedule, 0.0]):
        runs.append(alive)
        for row in alive:
            expected[row] = (stage, rows[row][stage])
        best = sorted(alive, key=lambda row: (-rows[row][stage], row))
        alive = sorted(best[: len(alive) - drop_count(len(alive), alpha, minimum)])
    assert backend.seen == runs
    assert list(zip(ranking.stages.tolist(), ranking.scores.tolist(), strict=True)) == expected
    order = sorted(range(len(rows)), key=lambda row: (-expected[row][0], -expected[row][1], row))
    assert ranking.order.tolist() == order
    assert ranking.heads is not None
    for row, (stage, score) in enumerate(expected):
        heads = ranking.heads[row]
        assert (heads == score).all() if stage == 2 else np.isnan(heads).all()


@given(
    rows=st.lists(st.tuples(*[st.sampled_from([0.1, 0.2, 0.5, 0.9])] * 3), min_size=1, max_size=25),
    margin=st.sampled_from([0.0, 0.15, 0.35, 1.0]),
)
def test_a_policy_without_ratios_is_followed(rows: list[tuple[float, ...]], margin: float) -> None:
    """A policy that keeps candidates near the best is followed, against lists in plain Python."""
    backend, policy = Table(np.array(rows)), Margin(stages=3, margin=margin)
    ranking = rank_pairs(backend, random_pairs([4] * len(rows)), policy)
    alive, runs = list(range(len(rows))), []
    for stage in range(3):
        runs.append(alive)
        alive = [row for row in alive if rows[row][stage] >= max(rows[other][stage] for other in alive) - margin]
    assert backend.seen == runs
    assert np.flatnonzero(ranking.stages == 2).tolist() == runs[2]


def test_a_policy_for_another_number_of_stages_is_refused(backend: Backend[Any]) -> None:
    """Such a policy is an error before any stage runs."""
    with pytest.raises(ValueError, match="3 stages take 2 drop ratios, not 1"):
        rank_pairs(backend, random_pairs([9]), Margin(stages=2, margin=0.5))


def test_no_candidates_is_an_error(backend: Backend[Any], checkpoint: Checkpoint) -> None:
    """Ranking no candidates raises ValueError."""
    with pytest.raises(ValueError, match="at least one candidate"):
        rank_pairs(backend, checkpoint.encoder().encode("a", []))


def test_nan_is_an_error(backend: Backend[Any]) -> None:
    """A score that is not a number never becomes an order."""
    with pytest.raises(NonFiniteScoreError, match="stage 1"):
        rank_pairs(Altered(backend, broken_scores), random_pairs([9, 9]))
