"""The settings that a torch backend or encoder makes in its process and on its device before it computes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from tests.first_stages import first_stage_config, network_of, ranker_of
from tests.tiny import random_ranker

from cerberank_models.backends.stage_contract import DeviceError
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.encoding import EncodedPairs
from cerberank_models.first_stage.torch_encoder import TorchEncoder


def ranker(**options: Any) -> TorchBackend:
    return TorchBackend(random_ranker(), **options)


def encoder(**options: Any) -> TorchEncoder:
    shape = {"token_ranker": "dot"}
    return TorchEncoder(network_of(ranker_of(shape), first_stage_config(**shape)), **options)


def encoded() -> EncodedPairs:
    """A text of two tokens."""
    ids, offsets = np.asarray([2, 3], np.int32), np.asarray([0, 2])
    return EncodedPairs(token_ids=ids, type_ids=0 * ids, offsets=offsets, truncated=np.zeros(1, np.bool_))


@pytest.fixture(params=[ranker, encoder])
def opened(request: pytest.FixtureRequest) -> Callable[..., TorchBackend | TorchEncoder]:
    """A ranker's backend, or a first stage's."""
    return request.param


@pytest.mark.parametrize(("precision", "reduced"), [("fp16", False), ("bf16", True), ("fp32", True)])
def test_products_in_fp16_are_summed_in_fp32(
    opened: Callable[..., TorchBackend | TorchEncoder], precision: str, reduced: bool
) -> None:
    """Partial sums in float16 could overflow where every activation fits; other precisions change nothing."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_fp16_reduced_precision_reduction
    matmul.allow_fp16_reduced_precision_reduction = True
    try:
        opened(precision=precision)
        assert matmul.allow_fp16_reduced_precision_reduction is reduced
    finally:
        matmul.allow_fp16_reduced_precision_reduction = before


@pytest.mark.parametrize("threads", [1, 2])
def test_several_threads_compute_in_no_forked_process(
    opened: Callable[..., TorchBackend | TorchEncoder], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch would wait there for OpenMP's threads, which only its parent has; with one thread it computes."""
    made, texts, before = opened(), encoded(), torch.get_num_threads()
    monkeypatch.setattr("os.getpid", lambda: 0)
    torch.set_num_threads(threads)
    try:
        with pytest.raises(DeviceError, match="load the ranker in each process") if threads > 1 else nullcontext():
            made.start(texts) if isinstance(made, TorchBackend) else made.encode(texts)
    finally:
        torch.set_num_threads(before)
