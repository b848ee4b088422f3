"""The number of a processor's threads that train a network: few for a small one, whose threads would wait for each
other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from cerberank_models.backends.processors import usable_processors
from cerberank_training.data.sampling import NegativeSampling, Sampling
from cerberank_training.learning.train_config import TrainConfig

WORK = 20e9
"""A further thread for so many products of a weight and a token in a step."""


@contextmanager
def training_threads(work: float) -> Iterator[int]:
    """Let PyTorch compute with the threads that a step of so much `work` is worth; yields their number.

    The environment's OMP_NUM_THREADS is left as it is, because whoever sets it knows the machine.
    """
    before = torch.get_num_threads()
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(threads_for(work, usable_processors()))
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def threads_for(work: float, processors: int) -> int:
    """One thread for each `WORK` of a step, at least one and no more than there are processors.

    >>> [threads_for(work, 16) for work in (1e6, 14e9, 60e9, 250e9, 1e15)]
    [1, 1, 3, 13, 16]
    """
    return int(min(max(1, -(-work // WORK)), processors))


def step_work(network: nn.Module, config: TrainConfig, sampling: Sampling, *, max_length: int) -> float:
    """The products of weights and tokens in a step, were all texts as long as `max_length` allows.

    Embeddings are looked up and not multiplied, so that they do not count.
    """
    tables = {id(each.weight) for each in network.modules() if isinstance(each, nn.Embedding)}
    weights = sum(each.numel() for each in network.parameters() if id(each) not in tables)
    if config.tokens_per_step is not None:
        return float(weights) * config.tokens_per_step
    pairs = 1
    if isinstance(sampling, NegativeSampling):
        pairs += sampling.own + sampling.hard + sampling.random
    return float(weights) * config.questions_per_step * pairs * max_length
