"""Rotary positions: queries and keys turned by angles that grow with their tokens' positions."""

from __future__ import annotations

import torch
from torch import Tensor


def turns_of(positions: Tensor, size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each token's angles for heads of `size`, `[.., 1, d / 2]`, in float32 in every precision.

    `theta` is the base of the frequencies.
    """
    steps = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device) / size
    angles = positions[..., None, None] / theta**steps
    return angles.cos(), angles.sin()


def turned(split: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Queries or keys `[.., H, d]` turned by their positions, the first half of each head against the second."""
    first, second = split.float().chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1).to(split.dtype)
