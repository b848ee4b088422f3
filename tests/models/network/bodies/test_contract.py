"""A body that production code does not know runs wherever BERT's runs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.network.bodies.rotary import rotary_ranker
from tests.models.network.varlen_oracle import varlen_oracle
from tests.tiny import padded, random_pairs

from cerberank_models.backends.contract import Backend, probability
from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.onnx_device_backend import OnnxDeviceBackend
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.encoding import EncodedPairs
from cerberank_models.export.graphs import export_stages
from cerberank_models.export.int8 import measure_ranges, quantise
from cerberank_models.network.layout import PackedLayout

LENGTHS = [5, 30, 3, 12, 1, 31, 30, 48]
STAGES = (0, 1, 2)


def expected(pairs: EncodedPairs) -> list[np.ndarray]:
    """The probabilities of every stage, packed, computed by the network directly."""
    arrays = (pairs.token_ids, pairs.type_ids, pairs.offsets)
    with torch.no_grad():
        logits = rotary_ranker().stage_logits(*map(torch.from_numpy, arrays), STAGES)
    return [probability(each.numpy()) for each in logits]


def scores(backend: Backend[Any], pairs: EncodedPairs) -> list[np.ndarray]:
    state, found = backend.start(pairs), []
    for stage in STAGES:
        output = backend.run(state, stage)
        found.append(output.scores[:, None] if output.head_scores is None else output.head_scores)
        state = output.state
    return found


def check(backend: Backend[Any], bound: float) -> None:
    pairs = random_pairs(LENGTHS)
    for got, wanted in zip(scores(backend, pairs), expected(pairs), strict=True):
        assert wanted.std() > 0.05
        assert np.abs(got - wanted).max() <= bound


def test_positions_decide() -> None:
    """The test's body uses positions: a pair's tokens in another order give another score."""
    pairs = random_pairs([12])
    turned = random_pairs([12])
    turned.token_ids[1:] = turned.token_ids[:0:-1]
    assert np.abs(expected(pairs)[-1] - expected(turned)[-1]).max() > 0.01


def test_packed_equals_padded() -> None:
    """Positions are the same in both layouts, in exits and heads."""
    pairs = random_pairs(LENGTHS)
    with torch.no_grad():
        for stage, wanted in zip(STAGES, expected(pairs), strict=True):
            got = probability(rotary_ranker().forward_padded(*padded(pairs), stage).numpy())
            assert np.abs(got - wanted).max() <= 1e-5


def test_first_token_only_equals_the_full_layer() -> None:
    """The test's body computes the first token as the full layer does."""
    layout = PackedLayout.of(torch.from_numpy(random_pairs(LENGTHS).offsets))
    hidden = torch.randn(sum(LENGTHS), 32, generator=torch.Generator().manual_seed(1))
    layer = rotary_ranker().body[0]
    with torch.no_grad():
        full = layout.first(layer(hidden, layout))
        assert (layer.forward_first(hidden, layout) - full).abs().max() <= 1e-5  # type: ignore[operator]


@pytest.mark.parametrize("kernel", [None, varlen_oracle])
def test_the_torch_backend_runs_it(kernel: Any) -> None:
    """With padded attention on a processor, which must not absorb its keys, and with the GPU's kernel."""
    check(TorchBackend(rotary_ranker(), kernel=kernel), 1e-5)


def test_captured_stages_run_it() -> None:
    """Captured stages run it with tokens of no pair, whose positions stay in bounds."""
    check(TorchBackend(rotary_ranker(), kernel=varlen_oracle, graph_tokens=256, capture=lambda run: run), 1e-5)


def test_it_is_exported(tmp_path: Path) -> None:
    """Exported graphs give the network's scores, also with hidden states that stay on the device."""
    ranker = rotary_ranker()
    check(OnnxBackend(export_stages(ranker, tmp_path / "plain"), ranker.config, threads=1), 1e-4)
    check(OnnxDeviceBackend(export_stages(ranker, tmp_path / "held", gather=True), ranker.config, threads=1), 1e-4)


def test_it_has_an_int8_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both products that compute an inner channel are reordered with the one that reads it: scores stay near fp32."""
    monkeypatch.setattr("cerberank_models.export.int8.KEPT_CHANNELS", 4)
    ranker = rotary_ranker()
    before = copy.deepcopy(ranker.state_dict())
    quantised = quantise(ranker, measure_ranges(ranker, [random_pairs(LENGTHS, seed=1)]), margin=1.1)
    assert all(torch.equal(before[name], value) for name, value in ranker.state_dict().items())
    for layer in quantised.body:
        assert layer.down.kept == 4  # type: ignore[union-attr]
    pairs = random_pairs(LENGTHS)
    got = scores(OnnxBackend(export_stages(quantised, tmp_path), ranker.config, threads=1), pairs)[-1]
    wanted = expected(pairs)[-1]
    assert np.corrcoef(got.ravel(), wanted.ravel())[0, 1] > 0.95
