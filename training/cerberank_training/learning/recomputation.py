"""Gradient checkpointing: layers keep their inputs alone, and the backward pass computes the rest again."""

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
    """The block's calls of the layers keep their inputs alone until the backward pass, which may be after the block."""

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), training_attention(device)  # the backward pass has left the context of the forward pass

    for layer in layers:
        # In the instance's dictionary it hides the class's method; modules and names of weights stay as they are.
        vars(layer)["forward"] = partial(checkpoint, layer.forward, use_reentrant=False, context_fn=contexts)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["forward"]
