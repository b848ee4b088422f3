"""Captured stages on a CPU, where a captured graph is replaced by the computation itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.bounds import PROBABILITIES
from tests.models.network.varlen_oracle import varlen_oracle
from tests.tiny import random_pairs, random_ranker
from torch import Tensor

from cerberank_models.backends.contract import BackendCounts
from cerberank_models.backends.cuda_graphs import LEAST_TOKENS, WARM_UP, cuda_graphs, graph_sizes
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.encoding import EncodedPairs

Compute = Callable[[], tuple[Tensor, Tensor]]


def repeated(compute: Compute) -> Compute:
    """Like a CUDA graph: every replay writes into the tensors that the capture made."""
    fixed = compute()

    def replay() -> tuple[Tensor, Tensor]:
        for tensor, value in zip(fixed, compute(), strict=True):
            tensor.copy_(value)
        return fixed

    return replay


def all_scores(backend: TorchBackend, pairs: EncodedPairs) -> list[np.ndarray]:
    state, scores = backend.start(pairs), []
    for stage in range(len(backend.config.stages)):
        output = backend.run(state, stage)
        scores.append(output.scores if output.head_scores is None else output.head_scores)
        state = output.state
    return scores


def captured(tokens: int = LEAST_TOKENS) -> TorchBackend:
    return TorchBackend(random_ranker(), graph_tokens=tokens, kernel=varlen_oracle, capture=repeated)


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_padding_is_at_most_a_fifth(largest: int, tokens: int) -> None:
    """Every number of tokens up to the largest fits a graph that is at most a quarter larger, or the smallest graph."""
    tokens = min(tokens, largest)
    sizes = graph_sizes(largest)
    assert list(sizes) == sorted(set(sizes))
    size = next(size for size in sizes if size.tokens >= tokens)
    assert size.tokens == LEAST_TOKENS or size.tokens <= 1.25 * tokens


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


@pytest.mark.parametrize("lengths", [[40] * 10, [4] * 20])
def test_steps_larger_than_every_graph_run_uncaptured(lengths: list[int]) -> None:
    """A step with too many tokens or pairs for the largest graph runs without padding and gives the same scores."""
    pairs = random_pairs(lengths)
    backend = captured()
    expected = all_scores(TorchBackend(random_ranker()), pairs)
    assert np.abs(all_scores(backend, pairs)[-1] - expected[-1]).max() <= PROBABILITIES
    assert backend.counts == BackendCounts(graph_misses=3)


def test_padded_attention_cannot_be_captured() -> None:
    """CUDA graphs on a CPU are refused when the backend opens, not when it runs."""
    with pytest.raises(ValueError, match="variable-length"):
        TorchBackend(random_ranker(), graph_tokens=1024)


def test_selected_and_joined_states_run_in_a_graph() -> None:
    """Survivors of two questions, joined between captured stages, score as they do alone."""
    parts = [random_pairs([5, 30, 3]), random_pairs([12, 9], seed=1)]
    backend = captured()
    expected = [all_scores(TorchBackend(random_ranker()), part)[-1] for part in parts]
    states = [backend.run(backend.start(part), 0).state for part in parts]
    state = backend.concat([backend.select(states[0], np.array([2, 0])), states[1]])
    for stage in (1, 2):
        output = backend.run(state, stage)
        state = output.state
    wanted = np.concatenate([expected[0][[2, 0]], expected[1]])
    assert np.abs(output.head_scores - wanted).max() <= PROBABILITIES


class FakeGraph:
    """In the place of `torch.cuda.CUDAGraph`: records how it is captured and how often it is replayed."""

    log: list[str]

    def capture_begin(self, *, pool: str, capture_error_mode: str) -> None:
        self.log.append(f"begin {pool} {capture_error_mode}")

    def capture_end(self) -> None:
        self.log.append("end")
        if "invalidated" in self.log:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    def replay(self) -> None:
        self.log.append("replay")


class FakeStream:
    """In the place of the current CUDA stream."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def synchronize(self) -> None:
        self.log.append("synchronize")


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A device that records what is asked of it."""
    log: list[str] = []
    monkeypatch.setattr(FakeGraph, "log", log, raising=False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: FakeStream(log))
    return log


def test_a_capture_disturbs_no_other_thread(fake_cuda: list[str]) -> None:
    """Kernels are warmed up before the capture, which is thread-local: a serving version may allocate meanwhile."""
    output = (torch.zeros(1), torch.ones(1))

    def compute() -> tuple[Tensor, Tensor]:
        fake_cuda.append("compute")
        return output

    replay = cuda_graphs()(compute)
    assert fake_cuda == [*["compute"] * WARM_UP, "synchronize", "begin pool thread_local", "compute", "end"]
    assert replay() is output
    assert fake_cuda[-1] == "replay"


def test_a_failing_capture_is_ended(fake_cuda: list[str]) -> None:
    """An error while capturing ends the capture, so that the stream can be used again, and reaches the caller."""

    def compute() -> tuple[Tensor, Tensor]:
        fake_cuda.append("compute")
        if "begin pool thread_local" in fake_cuda:
            fake_cuda.append("invalidated")
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return torch.zeros(1), torch.ones(1)

    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        cuda_graphs()(compute)
    assert fake_cuda[-1] == "end"
