"""The pre-norm body against itself: one set of weights in every layout, backend and form."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.bounds import PROBABILITIES
from tests.models.backends.stages import all_scores
from tests.models.network.varlen_oracle import varlen_oracle
from tests.tiny import random_pairs, random_ranker

from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.stage_contract import Backend, probability
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.convert.graphs import export_stages
from cerberank_models.convert.int8 import measure_ranges, quantise
from cerberank_models.encoding import EncodedPairs
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.network.stacked import stackable

LENGTHS = [5, 30, 3, 12, 1, 31, 30, 48]
"""Below, at and above the five tokens that see each other in a local layer."""
PLAIN: dict[str, object] = {}
BIASED: dict[str, object] = {
    "classifier_pooling": "mean",
    **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), True),
}
"""Everything that ModernBERT leaves out, and its other pooling."""


def modern(changes: dict[str, object] = PLAIN, *, exits: tuple[int, ...] = (1, 2), heads: int = 3) -> RankingNetwork:
    """Two exits, heads with a local layer; norms and biases are random, so that none passes for another."""
    ranker = random_ranker(family="modernbert", body_layers=2, num_hidden_layers=3, exits=exits, heads=heads, **changes)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in ranker.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return ranker


def expected(pairs: EncodedPairs, ranker: RankingNetwork) -> list[np.ndarray]:
    """The probabilities of every stage, packed, computed by the network directly."""
    arrays = (pairs.token_ids, pairs.type_ids, pairs.offsets)
    with torch.no_grad():
        logits = ranker.stage_logits(*map(torch.from_numpy, arrays), range(len(ranker.config.stages)))
    return [probability(each.numpy()) for each in logits]


def check(backend: Backend[Any], ranker: RankingNetwork, bound: float) -> None:
    pairs = random_pairs(LENGTHS)
    for got, wanted in zip(all_scores(backend, pairs), expected(pairs, ranker), strict=True):
        assert wanted.std() > 0.05
        assert np.abs(got.reshape(wanted.shape) - wanted).max() <= bound


@pytest.mark.parametrize("changes", [PLAIN, BIASED])
@pytest.mark.parametrize("kernel", [None, varlen_oracle])
def test_the_torch_backend_runs_it(kernel: Any, changes: dict[str, object]) -> None:
    """With padded attention on a processor, and with the GPU's kernel, merged projections and stacked heads."""
    assert stackable(modern(changes).heads[0]) == (changes is BIASED)
    check(TorchBackend(modern(changes), kernel=kernel), modern(changes), PROBABILITIES)


def test_captured_stages_run_it() -> None:
    """Captured stages run it with tokens of no pair, whose positions stay in bounds."""
    backend = TorchBackend(modern(), kernel=varlen_oracle, graph_tokens=256, capture=lambda run: run)
    check(backend, modern(), PROBABILITIES)


def test_half_precision_stays_near() -> None:
    """bfloat16 has three digits; angles are computed in float32, or positions would be lost."""
    pairs = random_pairs(LENGTHS)
    for got, wanted in zip(
        all_scores(TorchBackend(modern(), precision="bf16"), pairs), expected(pairs, modern()), strict=True
    ):
        assert np.abs(got.reshape(wanted.shape) - wanted).max() <= 0.1


@pytest.mark.slow
def test_it_is_exported(tmp_path: Path) -> None:
    """Exported graphs give the network's scores; how far tokens are decides what a local layer reads."""
    ranker = modern(exits=(1,), heads=1)
    graphs = export_stages(ranker, tmp_path)
    assert all(b"Abs" in graph.read_bytes() for graph in graphs[1:])
    check(OnnxBackend(graphs, ranker.config, threads=1), ranker, 1e-5)


@pytest.mark.slow
def test_a_graph_of_short_pairs_has_no_window(tmp_path: Path) -> None:
    """If every pair fits into the window, the graph does not ask how far tokens are; with everything else that
    ModernBERT leaves out.
    """
    ranker = modern(BIASED | {"local_attention": 2 * 47}, exits=(), heads=1)
    graphs = export_stages(ranker, tmp_path)
    assert not any(b"Abs" in graph.read_bytes() for graph in graphs)
    check(OnnxBackend(graphs, ranker.config, threads=1), ranker, 1e-5)


@pytest.mark.slow
def test_it_has_an_int8_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both products that compute an inner channel are reordered with the one that reads it: scores stay near fp32."""
    monkeypatch.setattr("cerberank_models.convert.int8.FP32_CHANNELS", 4)
    ranker = modern(exits=(), heads=1)
    before = copy.deepcopy(ranker.state_dict())
    quantised = quantise(ranker, measure_ranges(ranker, [random_pairs(LENGTHS, seed=1)]), margin=1.1)
    assert all(torch.equal(before[name], value) for name, value in ranker.state_dict().items())
    for layer in quantised.body:
        assert layer.down.fp32_channels == 4  # type: ignore[union-attr]
    pairs = random_pairs(LENGTHS)
    got = all_scores(OnnxBackend(export_stages(quantised, tmp_path), ranker.config, threads=1), pairs)[-1]
    wanted = expected(pairs, ranker)[-1]
    assert np.corrcoef(got.ravel(), wanted.ravel())[0, 1] > 0.95
