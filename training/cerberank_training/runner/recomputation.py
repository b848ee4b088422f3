"""Gradient checkpointing: layers keep only their inputs, and the backward pass computes the rest again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint


@contextmanager
def recomputed(layers: Sequence[nn.Module], device: torch.device) -> Iterator[None]:
    """Let calls of the layers within the block keep only their inputs; the backward pass may run after the block."""

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), training_attention(
            device
        )  # the backward pass runs outside the context of the forward pass

    for layer in layers:
        # An attribute of the instance hides the method of the class; modules and names of weights do not change.
        vars(layer)["forward"] = partial(checkpoint, layer.forward, use_reentrant=False, context_fn=contexts)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["forward"]


class Recomputed(nn.Module):
    """A module whose `layers` keep only their inputs in every call."""

    def __init__(self, module: nn.Module, layers: Sequence[nn.Module], device: torch.device) -> None:
        super().__init__()
        self.module = module
        self._layers = list(layers)
        self._device = device

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Call the module."""
        with recomputed(self._layers, self._device):
            return self.module(*arguments, **named)


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
