"""torch and ONNX fulfil one contract: the same scores, whole, selected and concatenated."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.bounds import PROBABILITIES
from tests.models.backends.stages import all_scores
from tests.tiny import random_pairs, random_ranker

from cerberank_models.backends.batching import BucketRule
from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.registry import BACKENDS, BackendSpec, check_precision, open_backend, precisions_help
from cerberank_models.backends.stage_contract import Backend, probability
from cerberank_models.backends.torch_backend import CPU_BLOCKS, TorchBackend
from cerberank_models.backends.torch_stages import PRECISIONS
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError, read_checkpoint
from cerberank_models.convert.checkpoint import PARITY
from cerberank_models.golden import check_golden

LENGTHS = [5, 30, 3, 12, 9, 31, 30, 48]


@pytest.fixture(scope="module", params=["torch", "onnx"])
def backend(request: pytest.FixtureRequest, tiny_checkpoint: Path) -> Backend[Any]:
    return open_backend(read_checkpoint(tiny_checkpoint), kind=request.param, precision="fp32", threads=1)


def test_torch_equals_onnx(tiny_checkpoint: Path) -> None:
    """fp32 probabilities of every stage and head within 1e-4."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    torch_scores, onnx_scores = (
        all_scores(open_backend(checkpoint, kind=kind, precision="fp32"), random_pairs(LENGTHS))
        for kind in ("torch", "onnx")
    )
    for ours, theirs in zip(torch_scores, onnx_scores, strict=True):
        assert np.abs(ours - theirs).max() <= 1e-4


@pytest.mark.parametrize("after", [0, 1])
def test_questions_run_on_together(backend: Backend[Any], after: int) -> None:
    """States that are concatenated before stage 0 or 1 score as they do apart."""
    parts = [random_pairs(LENGTHS[:3]), random_pairs(LENGTHS[3:], seed=1)]
    expected = [all_scores(backend, part)[-1] for part in parts]
    states = [backend.start(part) for part in parts]
    for stage in range(after):
        states = [backend.run(state, stage).state for state in states]
    state = backend.concat(states)
    for stage in range(after, 3):
        output = backend.run(state, stage)
        state = output.state
    assert np.abs(output.head_scores - np.concatenate(expected)).max() <= PROBABILITIES


def test_buckets_only_move_work(tiny_checkpoint: Path) -> None:
    """One pair per batch on three threads and one padded batch score alike; tight buckets compute no padding."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    graphs = checkpoint.stage_graphs("fp32")
    tight = OnnxBackend(graphs, checkpoint.config, threads=3, buckets=BucketRule(tokens=1))
    loose = OnnxBackend(graphs, checkpoint.config, threads=1, buckets=BucketRule(tokens=10_000, overhead=10**6))
    pairs = random_pairs(LENGTHS)
    assert np.abs(all_scores(tight, pairs)[-1] - all_scores(loose, pairs)[-1]).max() <= PROBABILITIES
    assert tight.counts.padding_tokens == 0
    assert loose.counts.padding_tokens == 3 * (max(LENGTHS) * len(LENGTHS) - sum(LENGTHS))


def test_blocks_only_move_work() -> None:
    """More tokens than torch runs in one block on a processor give the logits of one pass, in order."""
    ranker, pairs = random_ranker(), random_pairs([*LENGTHS, *[48] * 40])
    packed = [torch.from_numpy(array) for array in (pairs.token_ids, pairs.type_ids, pairs.offsets)]
    with torch.no_grad():
        logits = ranker.stage_logits(*packed, (0, 1, 2))
    scores = all_scores(TorchBackend(ranker), pairs)
    assert pairs.tokens > CPU_BLOCKS.tokens
    for got, expected in zip(scores, logits, strict=True):
        assert np.abs(got - probability(expected.numpy()).reshape(got.shape)).max() <= PROBABILITIES


def test_int8_stays_near_fp32(tiny_checkpoint: Path) -> None:
    """Quantised graphs rank like the fp32 ones; random weights of width 32 are the hard case."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    fp32, int8 = (
        all_scores(open_backend(checkpoint, precision=precision), random_pairs([20] * 40))[-1].mean(axis=1)
        for precision in ("fp32", "int8")
    )
    assert not np.array_equal(fp32, int8)
    assert np.corrcoef(fp32, int8)[0, 1] > 0.9


def test_what_is_not_there_is_refused(tiny_checkpoint: Path) -> None:
    """A precision without graphs, an unknown torch precision and a GPU without its provider are refused."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    with pytest.raises(CheckpointError, match="fp16"):
        open_backend(checkpoint, precision="fp16")
    with pytest.raises(ValueError, match="torch has no precision 'int8', only fp32"):
        open_backend(checkpoint, kind="torch", precision="int8")
    with pytest.raises(ValueError, match="onnx has no precision 'bf16', only int8"):
        open_backend(checkpoint, precision="bf16")
    with pytest.raises(CheckpointError, match=r"`cerberank import` and `cerberank train distil` write it"):
        open_backend(read_checkpoint(BUNDLED), kind="torch", precision="fp16")
    with pytest.raises(RuntimeError, match="onnx-gpu"):
        open_backend(checkpoint, kind="onnx", precision="fp32", device="cuda")
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="device 'cuda' needs an NVIDIA GPU"):
            open_backend(checkpoint, device="cuda")
    with pytest.raises(ValueError, match="no backend 'tpu', only onnx, torch"):
        open_backend(checkpoint, kind="tpu")


def test_the_registry_names_the_precisions_that_its_libraries_have() -> None:
    """Stated without importing torch or the exporter, the precisions are theirs, and help texts list them."""
    assert BACKENDS["torch"].precisions == tuple(PRECISIONS)
    assert set(BACKENDS["onnx"].precisions) == set(PARITY)


def test_another_backend_is_an_entry_in_the_registry(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that only this test knows is opened, checked and described by the same functions."""
    asked = {}

    def open_toy(checkpoint: Checkpoint, **options: object) -> Backend[Any]:
        asked.update(options)
        return TorchBackend.from_checkpoint(checkpoint)

    toy = BackendSpec(
        name="toy",
        open=open_toy,
        precisions=("fp8",),
        devices=("tpu",),
        usual={"tpu": "fp8"},
        first_on=("tpu",),
        files=lambda names, precision: tuple(name for name in names if name.startswith("toy/")),
    )
    monkeypatch.setattr("cerberank_models.backends.registry.BACKENDS", {**BACKENDS, "toy": toy})
    backend = open_backend(read_checkpoint(tiny_checkpoint), device="tpu")
    assert asked == {"precision": "fp8", "threads": None, "device": "tpu", "graph_tokens": None}
    assert len(all_scores(backend, random_pairs(LENGTHS))) == 3
    assert check_precision("toy", "fp8") == "fp8"
    with pytest.raises(ValueError, match="toy has no precision 'int8', only fp8"):
        check_precision("toy", "int8")
    assert precisions_help().endswith("; fp8 with toy")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux'")
@pytest.mark.parametrize(("kind", "precision"), [("torch", "fp32"), ("onnx", "fp32"), ("onnx", "int8")])
def test_an_open_checkpoint_may_be_deleted(tiny_copy: Path, kind: str, precision: str) -> None:
    """No file stays mapped or open, and what is computed is what was recorded."""
    checkpoint = read_checkpoint(tiny_copy)
    opened, encoder = open_backend(checkpoint, kind=kind, precision=precision, threads=1), checkpoint.encoder()
    shutil.rmtree(tiny_copy)
    assert str(tiny_copy) not in Path("/proc/self/maps").read_text()
    assert not [file for file in Path("/proc/self/fd").iterdir() if str(tiny_copy) in os.path.realpath(file)]
    check_golden(opened, checkpoint, precision, encoder=encoder)
