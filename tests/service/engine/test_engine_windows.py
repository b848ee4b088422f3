"""Candidates of several windows in the engine, against `rank_pairs`, which runs one question alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.service.asking import held, ranked
from tests.service.conftest import Start
from tests.service.fakes import FakeBackend
from tests.service.pairs import numbered_pairs

from cerberank_models.drop import UNSCORED, RatioSchedule
from cerberank_models.encoding import EncodedPairs
from cerberank_models.rank_pairs import rank_pairs
from cerberank_models.windows import Combine, Windows
from cerberank_service.engine.work import stage_tokens


def windowed(counts: list[int], combine: Combine = "best") -> EncodedPairs:
    """Candidates of these numbers of windows; window i has the span (i, i + 1)."""
    pairs = numbered_pairs(sum(counts))
    spans = np.stack([np.arange(len(pairs)), np.arange(len(pairs)) + 1], axis=1)
    return replace(pairs, windows=Windows(offsets=np.append(0, np.cumsum(counts)), spans=spans, combine=combine))


@pytest.mark.parametrize("step_tokens", [10, 10_000])
@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    policy=st.builds(RatioSchedule, st.tuples(*[st.sampled_from([0.0, 0.3, 0.6])] * 2), minimum=st.integers(1, 4)),
    combine=st.sampled_from(["best", "mean"]),
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_ranking_of_windows_is_the_reference_s(
    start: Start, step_tokens: int, counts: list[int], policy: RatioSchedule, combine: Combine
) -> None:
    """Order, scores, stages, heads and best windows, whatever is dropped and however the steps are cut."""
    pairs = windowed(counts, combine)
    wanted = rank_pairs(FakeBackend(), pairs, policy)
    got = ranked(start(FakeBackend(), step_tokens=step_tokens).submit(pairs, policy=policy))
    assert got.order.tolist() == wanted.order.tolist()
    np.testing.assert_array_equal(got.scores, wanted.scores)
    np.testing.assert_array_equal(got.stages, wanted.stages)
    assert got.spans.tolist() == wanted.spans.tolist()
    assert got.heads is not None
    assert wanted.heads is not None
    np.testing.assert_array_equal(got.heads, wanted.heads)
    alive = policy.expected_alive(len(counts))
    assert [(got.stages >= stage).sum() for stage in range(3)] == list(alive)
    assert stage_tokens(pairs, policy)[0] == pytest.approx(pairs.tokens)


def test_drops_are_counted_in_candidates(start: Start) -> None:
    """Half of four candidates with nine windows are two, in the metrics too; only the survivors' windows run on."""
    backend, counts = FakeBackend(), [4, 1, 3, 1]
    pairs = windowed(counts)
    asked = start(backend)
    got = ranked(asked.submit(pairs, policy=RatioSchedule((0.5, 0.0))))
    kept = [counts[index] for index in np.flatnonzero(got.stages == 2).tolist()]
    assert len(kept) == 2
    assert backend.runs == [(0, 9), (1, sum(kept)), (2, sum(kept))]


def test_a_deadline_leaves_the_order_of_the_windows_scored_so_far(start: Start) -> None:
    """A candidate has the best score of its windows that ran; one of whose windows none ran has none, and no window."""
    backend, pairs, times = FakeBackend(), windowed([2, 2]), iter([0.0, 0.0])
    asked = start(backend, step_tokens=int(pairs.lengths[2:].sum()), clock=lambda: next(times, 9.0))
    with held(backend):
        future = asked.submit(pairs, deadline=5.0)
    got = ranked(future)
    assert not got.complete
    assert got.stages.tolist() == [UNSCORED, 0]
    assert got.order.tolist() == [1, 0]
    assert np.isnan(got.scores[0])
    assert got.spans[0].tolist() == [-1, -1]
    assert got.spans[1].tolist() in ([2, 3], [3, 4])
