"""Networks that fit into float16 or do not, because their activations are made large on purpose."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from tests.tiny import bert_tokenizer, random_ranker

from cerberank_models.backends.half_precision import LARGEST, MARGIN
from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.network.ranking_network import RankingNetwork


def swollen(factor: float) -> RankingNetwork:
    """A ranker in whose first layer one channel between the two products of the feed-forward is so large."""
    ranker = random_ranker()
    with torch.no_grad():
        ranker.get_parameter("body.0.up.bias")[0] = factor
        ranker.get_parameter("body.0.down.weight")[:, 0] = 0.0  # the channel decides nothing: scores stay as they are
    return ranker


def checkpoint_of(ranker: RankingNetwork, path: Path) -> Checkpoint:
    export_checkpoint(
        ranker, bert_tokenizer(), path, card="# random\n", version="1", source="tests", forms=Forms(precisions=())
    )
    return read_checkpoint(path)


def test_fp16_gives_way_to_bf16(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A network near the end of float16 is opened in bf16, and a warning says why; scores stay near those of fp32."""
    checkpoint = checkpoint_of(swollen(2 * LARGEST), tmp_path / "swollen")
    with caplog.at_level(logging.WARNING):
        backend = open_backend(checkpoint, kind="torch", precision="fp16")
    assert backend.precision == "bf16"
    assert f"a margin of {MARGIN:g}" in caplog.text


def test_others_keep_the_precision(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An ordinary network is computed in the precision that was asked for, without a word."""
    checkpoint = checkpoint_of(random_ranker(), tmp_path / "usual")
    with caplog.at_level(logging.WARNING):
        assert open_backend(checkpoint, kind="torch", precision="fp16").precision == "fp16"
    assert caplog.text == ""
