"""States that stay on the device score like those that do not; here the device is the processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.models.backends.stages import all_scores
from tests.tiny import bert_tokenizer, random_pairs, random_ranker

from cerberank_models.backends.batching import BucketRule
from cerberank_models.backends.onnx_device_backend import DeviceState, OnnxDeviceBackend
from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.drop import RatioSchedule
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.rank_pairs import rank_pairs

pytestmark = pytest.mark.slow
"""No GPU has run this yet, and no everyday change touches it."""
LENGTHS = [5, 30, 3, 12, 9, 31, 30, 48]
NEAR = 0.01
"""Half precision on probabilities of random weights."""


def ranker() -> RankingNetwork:
    """Three stages of one layer each."""
    return random_ranker(body_layers=2, heads=1, num_hidden_layers=3)


WIDTH = ranker().config.transformer.hidden_size
SMALL = BucketRule(tokens=64)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("fp16") / "tiny"
    export_checkpoint(
        ranker(),
        bert_tokenizer(),
        folder,
        card="# fp16\n",
        version="1",
        source="tests",
        forms=Forms(precisions=("fp16",)),
    )
    return read_checkpoint(folder)


@pytest.fixture
def backend(checkpoint: Checkpoint) -> OnnxDeviceBackend:
    return OnnxDeviceBackend(checkpoint.stage_graphs("fp16"), checkpoint.config, threads=1, buckets=SMALL)


def test_every_stage_scores_like_pytorch(backend: OnnxDeviceBackend) -> None:
    """Several batches, mixed lengths: within half precision of fp32, and padding is counted."""
    pairs = random_pairs(LENGTHS)
    for ours, exact in zip(all_scores(backend, pairs), all_scores(TorchBackend(ranker()), pairs), strict=True):
        assert exact.std() > 0.05
        assert np.abs(ours - exact).max() <= NEAR
    assert backend.counts.padding_tokens > 0


def test_survivors_score_as_if_nobody_was_dropped(backend: OnnxDeviceBackend) -> None:
    """Selecting twice and out of order changes no score, and a batch without survivors is freed."""
    expected = all_scores(backend, random_pairs(LENGTHS))
    after = backend.run(backend.start(random_pairs(LENGTHS)), 0).state
    assert after is not None
    rows = np.array([6, 0, 3, 1])
    state = backend.select(backend.select(after, rows), np.array([2, 0, 1]))
    survivors = rows[[2, 0, 1]]
    assert state.places is not None
    assert after.places is not None
    assert len(state.places.held) < len(after.places.held)
    padded = [int(np.prod(batch.shape())) for batch in state.places.held]
    assert backend.state_bytes(state) == 2 * sum(padded) > 2 * WIDTH * int(state.lengths.sum())
    assert backend.state_bytes(backend.start(random_pairs(LENGTHS))) == 0
    output = backend.run(state, 1)
    assert np.abs(output.scores - expected[1][survivors]).max() <= NEAR / 10
    assert output.state is not None
    assert np.abs(backend.run(output.state, 2).scores - expected[2][survivors, 0]).max() <= NEAR / 10


def test_questions_that_shared_a_batch_share_it_again(backend: OnnxDeviceBackend) -> None:
    """Survivors of two questions in one batch run as one batch again beside a third; scores are unchanged."""
    expected = all_scores(backend, random_pairs(LENGTHS))
    together = backend.run(backend.start(random_pairs(LENGTHS)), 0).state
    alone = backend.run(backend.start(random_pairs([7, 8], seed=1)), 0).state
    assert together is not None
    assert alone is not None
    parts: list[DeviceState] = [
        backend.select(together, np.array([7, 2])),
        alone,
        backend.select(together, np.array([5])),
    ]
    joined = backend.concat(parts)
    assert joined.places is not None
    held = {id(value) for part in parts if part.places is not None for value in part.places.held}
    assert len(joined.places.held) == len(held)
    scores = backend.run(joined, 1).scores
    assert np.abs(scores[[0, 1, 4]] - expected[1][[7, 2, 5]]).max() <= NEAR / 10


def test_a_whole_cascade_ranks(checkpoint: Checkpoint) -> None:
    """Opened by its precision, with drops, it gives PyTorch's survivors and order; a GPU needs its provider."""
    pairs = random_pairs(LENGTHS)
    ours = rank_pairs(open_backend(checkpoint, precision="fp16"), pairs, RatioSchedule((0.3, 0.5)))
    exact = rank_pairs(TorchBackend(ranker()), pairs, RatioSchedule((0.3, 0.5)))
    assert ours.stages.tolist() == exact.stages.tolist()
    assert ours.order[0] == exact.order[0]
    with pytest.raises(RuntimeError, match="onnx-gpu"):
        open_backend(checkpoint, kind="onnx", precision="fp16", device="cuda:1")


def test_graphs_must_fit_the_stages(checkpoint: Checkpoint) -> None:
    """A number of graphs that is not the number of stages is refused."""
    with pytest.raises(ValueError, match="3 stages"):
        OnnxDeviceBackend([Path("one.onnx")], checkpoint.config)
