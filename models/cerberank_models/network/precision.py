"""Casts a ranker to half precision, except for the last linear layer of each exit and head.

bfloat16 has eight significant bits, so that neighbouring logits near -5 are 1/32 apart and confident candidates would
tie. The last layer is a thousandth of a head's work, and stays in float32.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class LastLinear(nn.Linear):
    """The last layer of an exit or a head. It computes logits in the precision of its weights, even under autocast."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Compute logits `[.., out]` from `[.., D]` of any precision."""
        kind = hidden.device.type
        # Autocast is entered only if it is enabled, because it does not support the meta device, and graphs for ONNX
        # must not contain such a block.
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                return super().forward(hidden.to(self.weight.dtype))
        return super().forward(hidden.to(self.weight.dtype))


def in_precision(module: ModuleT, precision: torch.dtype) -> ModuleT:
    """Cast the weights of `module` in place, except those of its `LastLinear` layers; returns `module`."""
    for part in module.modules():
        if not isinstance(part, LastLinear):
            for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
                if tensor.is_floating_point():
                    tensor.data = tensor.data.to(precision)
    return module
