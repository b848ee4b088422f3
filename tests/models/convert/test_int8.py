"""The int8 form: near fp32 although channels stand out, and the same score in any batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from tests.tiny import random_pairs, random_ranker

from cerberank_models.backends.batching import BucketRule
from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.stage_contract import Backend
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.convert.graphs import export_stages
from cerberank_models.convert.int8 import measure_ranges, quantise
from cerberank_models.encoding import EncodedPairs
from cerberank_models.network.ranking_network import RankingNetwork

LENGTHS = [5, 30, 3, 12, 9, 31, 30, 48]


def standing_out() -> RankingNetwork:
    """A ranker with one inner channel 200 times as large as the others, but unchanged fp32 results."""
    ranker = random_ranker(body_layers=1, heads=1, exits=(), num_hidden_layers=1)
    with torch.no_grad():
        for layer in ranker.body:
            layer.up.weight[3] *= 200
            layer.up.bias[3] = layer.up.bias[3] * 200 + 50
            layer.down.weight[:, 3] /= 2000
    return ranker


def int8_graphs(ranker: RankingNetwork, folder: Path, *, margin: float = 1.1) -> list[Path]:
    ranges = measure_ranges(ranker, [random_pairs(LENGTHS, seed=seed) for seed in range(4)])
    return export_stages(quantise(ranker, ranges, margin=margin), folder)


def logits(backend: Backend[Any], pairs: EncodedPairs) -> np.ndarray:
    scores = backend.run(backend.start(pairs), 0).scores
    return np.log(scores / (1 - scores))


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Root mean square of the difference."""
    return float(np.sqrt(np.mean((one - other) ** 2)))


def error(ranker: RankingNetwork, graphs: list[Path]) -> float:
    """The distance of the int8 form's logits from the network's own, in units of their spread."""
    pairs = random_pairs(LENGTHS * 4, seed=9)
    exact = logits(TorchBackend(ranker), pairs)
    near = logits(OnnxBackend(graphs, ranker.config, threads=1), pairs)
    return distance(near, exact) / float(exact.std())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[RankingNetwork, list[Path]]:
    """A ranker without a channel that stands out, and its int8 form."""
    ranker = random_ranker(body_layers=1, heads=1, exits=(), num_hidden_layers=1)
    return ranker, int8_graphs(ranker, tmp_path_factory.mktemp("plain"))


@pytest.mark.slow
def test_a_channel_that_stands_out_costs_the_others_nothing(
    plain: tuple[RankingNetwork, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is that of a network without such a channel, and a third of plain int8's."""
    usual, ranker = error(*plain), standing_out()
    assert error(ranker, int8_graphs(ranker, tmp_path / "standing")) <= 1.5 * usual
    monkeypatch.setattr("cerberank_models.convert.int8.SMOOTHING", 0.0)
    monkeypatch.setattr("cerberank_models.convert.int8.FP32_CHANNELS", 0)
    assert error(ranker, int8_graphs(ranker, tmp_path / "naive")) >= 4 * usual


def test_a_score_does_not_depend_on_the_batch(plain: tuple[RankingNetwork, list[Path]], tmp_path: Path) -> None:
    """Pairs score alike alone and in one padded batch: the logits differ far less than with other int8 scales.

    In another batch sums have another order, so a few numbers round to another int8 value, which is as good. Other
    scales, as scales computed per batch would be, round all numbers anew; that difference of logits is measured.
    """
    (ranker, usual), pairs = plain, random_pairs(LENGTHS * 4, seed=9)
    rescaled = int8_graphs(ranker, tmp_path, margin=1.15)
    single, whole = BucketRule(tokens=1), BucketRule(tokens=10_000, overhead=10**6)
    alone, together = (OnnxBackend(usual, ranker.config, buckets=rule, threads=1) for rule in (single, whole))
    expected = logits(alone, pairs)
    anew = logits(OnnxBackend(rescaled, ranker.config, buckets=single, threads=1), pairs)
    assert distance(logits(together, pairs), expected) <= distance(anew, expected) / 2
    assert together.counts.padding_tokens > alone.counts.padding_tokens == 0


def test_a_layer_that_all_depths_share_has_one_int8_form(tmp_path: Path) -> None:
    """ALBERT, B2 2H0: near fp32 at every depth, and a graph holds the layer's products once."""
    ranker = random_ranker(family="albert", body_layers=2, heads=2, exits=(), num_hidden_layers=2)
    pairs = random_pairs(LENGTHS * 4, seed=9)
    (graph,) = int8_graphs(ranker, tmp_path)
    near = logits(OnnxBackend([graph], ranker.config, threads=1), pairs)
    exact = logits(TorchBackend(ranker), pairs)
    assert distance(near, exact) <= 0.25 * float(exact.std())
    products = [each for each in onnx.load(graph).graph.initializer if each.data_type == onnx.TensorProto.INT8]
    inner = [tuple(each.dims) for each in products if 64 in each.dims]
    assert inner.count((32, 64)) == inner.count((64, 32)) == 1


def test_the_ranker_itself_stays_fp32() -> None:
    """Quantising leaves the weights of the given network unchanged, despite reordered channels."""
    ranker = standing_out()
    before = {name: value.clone() for name, value in ranker.state_dict().items()}
    quantise(ranker, measure_ranges(ranker, [random_pairs(LENGTHS)]), margin=1.1)
    assert all(torch.equal(before[name], value) for name, value in ranker.state_dict().items())


def test_ranges_of_nothing_are_refused() -> None:
    """Questions without a pair are refused, because there is nothing to measure."""
    with pytest.raises(ValueError, match="at least one question"):
        measure_ranges(random_ranker(), [random_pairs([3]).select(np.array([], dtype=np.int64))])
