"""The number of CPU threads that train a network. A small network gets few, because more would wait for each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from cerberank_models.backends.processors import usable_processors
from cerberank_training.data.sampling import NegativeSampling, Sampling
from cerberank_training.learning.train_config import StudentConfig

WORK = 20e9
"""The products of a weight and a token in a step that justify one more thread."""


@contextmanager
def training_threads(work: float) -> Iterator[int]:
    """Set PyTorch's number of threads for a step of this `work` (`step_work`), and yield the number.

    If OMP_NUM_THREADS is set, its number is used.
    """
    before = torch.get_num_threads()
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(threads_for(work, usable_processors()))
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def threads_for(work: float, processors: int) -> int:
    """One thread for each `WORK` of a step, but at least one and at most one for each processor.

    >>> [threads_for(work, 16) for work in (1e6, 14e9, 60e9, 250e9, 1e15)]
    [1, 1, 3, 13, 16]
    """
    return int(min(max(1, -(-work // WORK)), processors))


def step_work(network: nn.Module, config: StudentConfig, sampling: Sampling, *, max_length: int) -> float:
    """The number of products of a weight and a token in a step, if all pairs had `max_length` tokens.

    Embeddings do not count, because they are looked up and not multiplied.
    """
    tables = {id(each.weight) for each in network.modules() if isinstance(each, nn.Embedding)}
    weights = sum(each.numel() for each in network.parameters() if id(each) not in tables)
    if config.tokens_per_step is not None:
        return float(weights) * config.tokens_per_step
    pairs = 1
    if isinstance(sampling, NegativeSampling):
        pairs += sampling.negatives + sampling.hard_negatives + sampling.other_negatives
    return float(weights) * config.examples_per_step * pairs * max_length
