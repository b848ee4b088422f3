"""Merges linear layers that read the same input into one product."""

from __future__ import annotations

import torch
from torch import nn


def side_by_side(*linears: nn.Linear) -> nn.Linear:
    """One layer that computes the outputs of `linears` one after another. Either all or none must have a bias."""
    weight = torch.cat([linear.weight.detach() for linear in linears])
    biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
    out, width = weight.shape
    merged = nn.Linear(width, out, bias=bool(biases), device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        merged.weight.copy_(weight)
        if biases:
            merged.bias.copy_(torch.cat(biases))
    return merged
