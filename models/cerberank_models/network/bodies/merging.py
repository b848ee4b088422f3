"""Several linear layers that read the same input as one product."""

from __future__ import annotations

import torch
from torch import nn


def side_by_side(*linears: nn.Linear) -> nn.Linear:
    """One layer that gives the outputs of `linears` one after another; all read the same, all have a bias or none."""
    weight = torch.cat([linear.weight.detach() for linear in linears])
    biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
    out, width = weight.shape
    merged = nn.Linear(width, out, bias=bool(biases), device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        merged.weight.copy_(weight)
        if biases:
            merged.bias.copy_(torch.cat(biases))
    return merged
