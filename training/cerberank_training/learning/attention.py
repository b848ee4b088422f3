"""The attention kernels that training runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def training_attention(device: torch.device) -> AbstractContextManager[None]:
    """A context with unfused attention on a CPU, and with PyTorch's own choice on other devices.

    On a CPU the backward pass of fused attention takes as long as all matrix products of MiniLM together; with unfused
    attention a step is 1.5 times as fast (an Intel Xeon with AMX, bf16, one thread).
    """
    return sdpa_kernel([SDPBackend.MATH]) if device.type == "cpu" else nullcontext()
