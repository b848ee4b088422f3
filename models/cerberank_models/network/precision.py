"""Half precision for a ranker: everything but the last linear layer of its exits and heads.

bfloat16 has eight significant bits: logits of -5 that are computed in it lie 1/32 apart, so that confident candidates
tie. The last layer is a thousandth of a head's work, and stays in float32.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class LastLinear(nn.Linear):
    """The layer whose result is the logits of an exit or a head; computes in the precision of its own weights.

    Training under autocast does not change that.
    """

    def forward(self, hidden: Tensor) -> Tensor:
        """`[.., D]` of any precision to logits `[.., out]`."""
        kind = hidden.device.type
        # Asked first: autocast knows no meta device, and a graph for ONNX must not have such a block.
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                return super().forward(hidden.to(self.weight.dtype))
        return super().forward(hidden.to(self.weight.dtype))


def in_precision(module: ModuleT, precision: torch.dtype) -> ModuleT:
    """Cast the weights of `module` in place, all but those of its `LastLinear` layers; returns it."""
    for part in module.modules():
        if not isinstance(part, LastLinear):
            for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
                if tensor.is_floating_point():
                    tensor.data = tensor.data.to(precision)
    return module
