"""The number of CPU threads that train a network. A small network gets few, because more would wait for each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cerberank_models.backends.processors import usable_processors

WORK = 20e9
"""The products of a weight and a token in a step that justify one more thread."""


@contextmanager
def training_threads(work: float | None) -> Iterator[int]:
    """Set PyTorch's number of threads for a step of this `work`, and yield the number.

    It stays what it is if the work is not known, or if OMP_NUM_THREADS is set.
    """
    before = torch.get_num_threads()
    if work is not None and not os.environ.get("OMP_NUM_THREADS"):
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
