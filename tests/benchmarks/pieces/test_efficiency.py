from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.tiny import random_pairs, random_ranker
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from cerberank_benchmarks.pieces.efficiency import operations


@pytest.mark.parametrize("heads", [1, 3])
def test_operations_are_those_that_pytorch_counts(heads: int) -> None:
    """Equal lengths, so that the packed path pads nothing: PyTorch's own counter is the oracle, classifiers aside."""
    ranker = random_ranker(heads=heads, exits=())
    pairs = random_pairs([12] * 5)
    # The counter does not know the fused kernel of the CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        ranker(*(torch.from_numpy(array) for array in (pairs.token_ids, pairs.type_ids, pairs.offsets)))
    width = ranker.config.transformer.hidden_size
    logits = ranker.config.architecture.classifier_logits
    classifiers = heads * 2 * 5 * (width**2 + width * logits)
    wanted = operations(ranker.config, np.asarray(pairs.lengths)) + classifiers
    assert counter.get_total_flops() == pytest.approx(wanted, rel=1e-6)
