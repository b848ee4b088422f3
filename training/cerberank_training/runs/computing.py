"""The computation of a step: precision, attention, gradient checkpointing, and threads of a processor."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from cerberank_models.backends.processors import usable_processors
from cerberank_training.runs.settings import Precision

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The types of products by precision."""
WORK = 20e9
"""The products of a weight and a token in a step that justify one more thread."""


@contextmanager
def tensor_cores(device: torch.device) -> Iterator[None]:
    """Compute matrix products of fp32 in TF32 within the block on a GPU, as the dev evaluation does.

    On other devices nothing changes. PyTorch has one such switch for the whole process.
    """
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def training_precision(device: torch.device, precision: Precision) -> Iterator[None]:
    """Compute the block's forward pass in `precision`, with the fastest attention for `device`."""
    with training_attention(device), autocast(device, precision):
        yield


class InPrecision(nn.Module):
    """A module whose forward pass is computed in `precision`."""

    def __init__(self, module: nn.Module, device: torch.device, precision: Precision) -> None:
        super().__init__()
        self.module = module
        self._device = device
        self._precision: Precision = precision

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Call the module."""
        with training_precision(self._device, self._precision):
            return self.module(*arguments, **named)


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """A context whose matrix products are computed in `precision`."""
    return torch.autocast(device.type, dtype=AUTOCAST[precision], enabled=precision != "fp32")


class Recomputed(nn.Module):
    """A module whose `layers` keep only their inputs in every call."""

    def __init__(self, module: nn.Module, layers: Sequence[nn.Module], device: torch.device) -> None:
        super().__init__()
        self.module = module
        self._layers = list(layers)
        self._device = device

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Call the module. The backward pass may run afterwards."""
        for layer in self._layers:
            # An attribute of the instance hides the method of the class; modules and names of weights do not change.
            recomputing = partial(checkpoint, layer.forward, use_reentrant=False, context_fn=self._contexts)
            vars(layer)["forward"] = recomputing
        try:
            return self.module(*arguments, **named)
        finally:
            for layer in self._layers:
                del vars(layer)["forward"]

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """The contexts of a layer's two forward passes; the second one runs outside the context of the whole pass."""
        return nullcontext(), training_attention(self._device)


def hugging_face_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a transformers model; its own gradient checkpointing leaves out those of ALBERT."""
    listed = (layer for part in model.modules() if isinstance(part, nn.ModuleList) for layer in part)
    return [layer for layer in listed if not any(isinstance(part, nn.ModuleList) for part in layer.modules())]


def training_attention(device: torch.device) -> AbstractContextManager[None]:
    """A context with unfused attention on a CPU, and with PyTorch's own choice on other devices.

    On a CPU the backward pass of fused attention takes as long as all matrix products of MiniLM together; with unfused
    attention a step is 1.5 times as fast (an Intel Xeon with AMX, bf16, one thread).
    """
    return sdpa_kernel([SDPBackend.MATH]) if device.type == "cpu" else nullcontext()


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
