"""Captured stages on a CPU, where a captured graph is replaced by the computation itself."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.bounds import PROBABILITIES
from tests.models.backends.stages import all_scores
from tests.models.network.varlen_oracle import varlen_oracle
from tests.tiny import random_pairs, random_ranker
from torch import Tensor

from cerberank_models.backends import cuda_graphs, torch_backend
from cerberank_models.backends.cuda_graphs import FINE_TOKENS, LEAST_TOKENS, graph_sizes
from cerberank_models.backends.device_memory import allocator_lock
from cerberank_models.backends.stage_contract import BackendCounts
from cerberank_models.backends.torch_backend import TorchBackend

pytestmark = pytest.mark.slow
"""No GPU has run this yet, and no everyday change touches it."""
Compute = Callable[[], tuple[Tensor, Tensor]]


def repeated(compute: Compute) -> Compute:
    """Like a CUDA graph: every replay writes into the tensors that the capture made."""
    fixed = compute()

    def replay() -> tuple[Tensor, Tensor]:
        for tensor, value in zip(fixed, compute(), strict=True):
            tensor.copy_(value)
        return fixed

    return replay


def captured(tokens: int = LEAST_TOKENS) -> TorchBackend:
    return TorchBackend(random_ranker(), graph_tokens=tokens, kernel=varlen_oracle, capture=repeated)


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_padding_is_bounded(largest: int, tokens: int) -> None:
    """Every number of tokens up to the largest fits a graph that is at most a quarter larger, or the smallest graph.

    From FINE_TOKENS on a graph is at most a sixteenth larger.
    """
    tokens = min(tokens, largest)
    sizes = graph_sizes(largest)
    assert list(sizes) == sorted(set(sizes))
    size = next(size for size in sizes if size.tokens >= tokens)
    share = 1 / 16 if tokens > FINE_TOKENS else 1 / 4
    assert size.tokens == LEAST_TOKENS or size.tokens <= (1 + share) * tokens


@pytest.mark.parametrize("lengths", [[5, 30, 3, 12, 9], [48] * 5, [16] * 16, [40]])
def test_captured_stages_score_like_the_others(lengths: list[int]) -> None:
    """Padding a graph changes no score, whether the graph is full or nearly empty, although the padding is NaN."""
    pairs = random_pairs(lengths)
    backend = captured()
    expected = all_scores(TorchBackend(random_ranker()), pairs)
    for got, wanted in zip(all_scores(backend, pairs), expected, strict=True):
        assert np.abs(got - wanted).max() <= PROBABILITIES
    padding = 3 * (LEAST_TOKENS - sum(lengths))
    assert backend.counts == BackendCounts(padding_tokens=padding, graph_hits=3)


def test_a_result_outlives_the_next_replay() -> None:
    """A waiting state is not overwritten when another question runs in the same graph."""
    first, second = random_pairs([20, 9]), random_pairs([11, 30], seed=1)
    backend = captured()
    waiting = backend.run(backend.start(first), 0)
    backend.run(backend.start(second), 0)
    assert waiting.state is not None
    got = backend.run(waiting.state, 1).scores
    assert np.abs(got - all_scores(TorchBackend(random_ranker()), first)[1]).max() <= PROBABILITIES


@pytest.mark.parametrize("lengths", [[40] * 10, [4] * 20, [3, 33]])
def test_steps_larger_than_every_graph_run_uncaptured(monkeypatch: pytest.MonkeyPatch, lengths: list[int]) -> None:
    """A step with too many tokens or pairs, or with a longer pair than graphs are captured for, has no padding."""
    monkeypatch.setattr(cuda_graphs, "LONGEST_PAIR", 32)
    pairs = random_pairs(lengths)
    backend = captured()
    expected = all_scores(TorchBackend(random_ranker()), pairs)
    assert np.abs(all_scores(backend, pairs)[-1] - expected[-1]).max() <= PROBABILITIES
    assert backend.counts == BackendCounts(graph_misses=3)


@pytest.mark.parametrize(("graph_tokens", "largest"), [(None, 640), (LEAST_TOKENS, LEAST_TOKENS)])
def test_a_full_step_runs_in_a_graph(monkeypatch: pytest.MonkeyPatch, graph_tokens: int | None, largest: int) -> None:
    """The graphs follow the step that warm-up chooses, where no size of them was set; no size is captured twice."""
    monkeypatch.setattr(torch_backend, "GRAPH_TOKENS", LEAST_TOKENS)
    sizes: list[int] = []

    def noted(compute: Compute) -> Compute:
        replay = repeated(compute)
        sizes.append(len(replay()[0]))
        return replay

    backend = TorchBackend(random_ranker(), graph_tokens=graph_tokens, kernel=varlen_oracle, capture=noted)
    small, full = random_pairs([30] * 8), random_pairs([30] * 20)
    before = all_scores(backend, small)
    backend.prepare(600)
    assert sizes[::3] == [size.tokens for size in graph_sizes(LEAST_TOKENS)[::-1] + graph_sizes(largest)[:0:-1]]
    for pairs in (small, full):
        expected = all_scores(TorchBackend(random_ranker()), pairs)
        assert np.abs(all_scores(backend, pairs)[-1] - expected[-1]).max() <= PROBABILITIES
    assert np.array_equal(all_scores(backend, small)[-1], before[-1])
    assert backend.counts.graph_misses == (0 if largest >= 600 else 3)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: operation failed due to a previous error during capture"),
    ],
)
def test_full_steps_run_uncaptured_where_a_capture_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: RuntimeError
) -> None:
    """Out of memory in its forms, and an invalidated capture: the graphs that are there stay."""
    monkeypatch.setattr(torch_backend, "GRAPH_TOKENS", LEAST_TOKENS)

    def small_device(compute: Compute) -> Compute:
        replay = repeated(compute)
        if len(replay()[0]) > LEAST_TOKENS:
            raise error
        return replay

    backend = TorchBackend(random_ranker(), graph_tokens=None, kernel=varlen_oracle, capture=small_device)
    backend.prepare(1024)
    assert f"steps of 1024 tokens run without CUDA graphs: {error}" in caplog.text
    for count, counts in ((5, BackendCounts(padding_tokens=318, graph_hits=3)), (20, BackendCounts(graph_misses=3))):
        before = backend.counts
        assert np.isfinite(all_scores(backend, random_pairs([30] * count))[-1]).all()
        assert before + counts == backend.counts


def test_a_graph_keeps_no_hidden_states_of_its_own() -> None:
    """All of them write into one tensor, which has the tokens of the largest: 25 sizes would take gigabytes."""
    kept: list[torch.Tensor] = []

    def noted(compute: Compute) -> Compute:
        kept.append(compute()[0])
        return compute

    TorchBackend(random_ranker(), graph_tokens=512, kernel=varlen_oracle, capture=noted)
    assert len({each.untyped_storage().data_ptr() for each in kept}) == 1
    assert [len(each) for each in kept] == [tokens * full for tokens in (512, 448, 384, 320, 256) for full in (1, 1, 0)]


class Garbage:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(params=[True, False], ids=["collecting", "not collecting"])
def collecting(request: pytest.FixtureRequest) -> Iterator[bool]:
    """True where garbage is collected when the test begins."""
    if not request.param:
        gc.disable()
    yield request.param
    gc.enable()


@pytest.mark.parametrize("fails", [False, True])
def test_no_garbage_is_collected_in_a_capture(collecting: bool, fails: bool) -> None:
    """CUDA objects among it would invalidate the capture; afterwards collection is as it was, whatever happened.

    Nor is memory returned to the device, which the allocator refuses during a capture.
    """
    garbage = weakref.ref(Garbage())
    seen: list[tuple[bool, bool, bool]] = []

    def watched(compute: Compute) -> Compute:
        seen.append((gc.isenabled(), garbage() is None, allocator_lock.locked()))
        if fails:
            raise RuntimeError("a capture that fails")
        return repeated(compute)

    def opened() -> TorchBackend:
        return TorchBackend(random_ranker(), graph_tokens=LEAST_TOKENS, kernel=varlen_oracle, capture=watched)

    backend, pairs = opened(), random_pairs([30])
    assert np.isfinite(all_scores(backend, pairs)[-1]).all()
    assert (backend.counts.graph_hits, backend.counts.graph_misses) == ((0, 3) if fails else (3, 0))
    assert set(seen) == {(False, True, True)}
    assert not allocator_lock.locked()
    assert gc.isenabled() is collecting


@pytest.mark.parametrize("fails", ["computing", "ending"])
def test_a_failed_capture_leaves_the_allocator_usable(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """The pool's allocation ends where the end of the capture raises, and nothing is captured again.

    The first error is the one that is raised.
    """
    calls: list[Any] = []

    class Graph:
        def capture_begin(self, *, pool: tuple[int, int], capture_error_mode: str) -> None:
            calls.append((pool, capture_error_mode))

        def capture_end(self) -> None:
            raise RuntimeError("ending")

    def compute() -> Any:
        if fails == "computing" and calls:  # and not in the run before the capture
            raise torch.OutOfMemoryError("computing")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *pool: calls.append(pool))
    with pytest.raises(RuntimeError, match=fails):
        cuda_graphs.cuda_graphs()(compute)
    assert calls == [((0, 7), "thread_local"), (1, (0, 7))]


def test_padded_attention_cannot_be_captured() -> None:
    """CUDA graphs on a CPU are refused when the backend opens, not when it runs."""
    with pytest.raises(ValueError, match="variable-length"):
        TorchBackend(random_ranker(), graph_tokens=1024)
