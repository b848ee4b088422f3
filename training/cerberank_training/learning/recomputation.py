"""Gradient checkpointing: layers keep only their inputs, and the backward pass computes the rest again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from cerberank_training.learning.attention import training_attention


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
