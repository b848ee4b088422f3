"""Graphs in half precision give the scores and the order of PyTorch's fp32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.models.backends.stages import all_scores
from tests.tiny import bert_tokenizer, random_pairs, random_ranker

from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.drop import RatioSchedule
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.rank_pairs import rank_pairs

LENGTHS = [5, 30, 3, 12, 9, 31, 30, 48]
NEAR = 0.01
"""Half precision on probabilities of random weights."""


def ranker() -> RankingNetwork:
    """Three stages of one layer each."""
    return random_ranker(body_layers=2, heads=1, num_hidden_layers=3)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("fp16") / "tiny"
    forms = Forms(precisions=("fp16",))
    export_checkpoint(ranker(), bert_tokenizer(), folder, card="# fp16\n", version="1", source="tests", forms=forms)
    return read_checkpoint(folder)


@pytest.mark.slow
def test_half_precision_ranks_like_pytorch(checkpoint: Checkpoint) -> None:
    """Every stage's scores, a cascade's survivors and order, and two bytes a number of hidden states."""
    backend, exact, pairs = open_backend(checkpoint, precision="fp16"), TorchBackend(ranker()), random_pairs(LENGTHS)
    for ours, theirs in zip(all_scores(backend, pairs), all_scores(exact, pairs), strict=True):
        assert theirs.std() > 0.05
        assert np.abs(ours - theirs).max() <= NEAR
    schedule = RatioSchedule((0.3, 0.5))
    ours, theirs = rank_pairs(backend, pairs, schedule), rank_pairs(exact, pairs, schedule)
    assert ours.stages.tolist() == theirs.stages.tolist()
    assert ours.order[0] == theirs.order[0]
    after = backend.run(backend.start(pairs), 0).state
    assert backend.state_bytes(after) == 2 * sum(LENGTHS) * checkpoint.config.transformer.hidden_size


def test_graphs_must_fit_the_stages() -> None:
    """A number of graphs that is not the number of stages is refused."""
    with pytest.raises(ValueError, match="3 stages"):
        OnnxBackend([Path("one.onnx")], ranker().config)
