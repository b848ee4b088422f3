"""The int8 form: near fp32 although channels stand out, and the same score in any batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import random_pairs, random_ranker

from cerberank_models.backends.batching import BucketRule
from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.encoding import EncodedPairs
from cerberank_models.export.graphs import export_stages
from cerberank_models.export.int8 import measure_ranges, quantise
from cerberank_models.network.ranker import Ranker

LENGTHS = [5, 30, 3, 12, 9, 31, 30, 48]


def standing_out() -> Ranker:
    """A ranker with one inner channel 200 times as large as the others, but unchanged fp32 results."""
    ranker = random_ranker(body_layers=3, heads=1, exits=())
    with torch.no_grad():
        for layer in ranker.body:
            layer.up.weight[3] *= 200
            layer.up.bias[3] = layer.up.bias[3] * 200 + 50
            layer.down.weight[:, 3] /= 2000
    return ranker


def int8_backend(ranker: Ranker, folder: Path, rule: BucketRule | None = None) -> OnnxBackend:
    ranges = measure_ranges(ranker, [random_pairs(LENGTHS, seed=seed) for seed in range(4)])
    graphs = export_stages(quantise(ranker, ranges, margin=1.1), folder)
    return OnnxBackend(graphs, ranker.config, buckets=rule, threads=1)


def logits(backend: OnnxBackend, pairs: EncodedPairs) -> np.ndarray:
    scores = backend.run(backend.start(pairs), 0).scores
    return np.log(scores / (1 - scores))


def error(ranker: Ranker, folder: Path) -> float:
    """Root mean square of the logits' difference from fp32, in units of their spread."""
    pairs = random_pairs(LENGTHS * 4, seed=9)
    exact = logits(OnnxBackend(export_stages(ranker, folder / "fp32"), ranker.config), pairs)
    near = logits(int8_backend(ranker, folder / "int8"), pairs)
    return float(np.sqrt(np.mean((near - exact) ** 2)) / exact.std())


def test_a_channel_that_stands_out_costs_the_others_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is that of a network without such a channel, and a third of plain int8's."""
    plain = error(random_ranker(body_layers=3, heads=1, exits=()), tmp_path / "plain")
    assert error(standing_out(), tmp_path / "standing") <= 1.5 * plain
    monkeypatch.setattr("cerberank_models.export.int8.SMOOTHING", 0.0)
    monkeypatch.setattr("cerberank_models.export.int8.KEPT_CHANNELS", 0)
    assert error(standing_out(), tmp_path / "naive") >= 4 * plain


def test_a_score_does_not_depend_on_the_batch(tmp_path: Path) -> None:
    """Each pair scores alike alone and in one padded batch of all."""
    alone = int8_backend(random_ranker(heads=2, exits=()), tmp_path / "alone", BucketRule(tokens=1))
    together = int8_backend(
        random_ranker(heads=2, exits=()), tmp_path / "together", BucketRule(tokens=10_000, overhead=10**6)
    )
    pairs = random_pairs(LENGTHS, seed=9)
    scores = [backend.run(backend.start(pairs), 0).scores for backend in (alone, together)]
    assert np.abs(scores[0] - scores[1]).max() <= 2e-3
    assert together.padding_tokens > alone.padding_tokens == 0


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
