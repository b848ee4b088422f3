"""Rotary positions: queries and keys are rotated by angles that are proportional to their tokens' positions."""

from __future__ import annotations

import torch
from torch import Tensor


def turns_of(positions: Tensor, size: int, theta: float) -> tuple[Tensor, Tensor]:
    """The cosine and sine of each token's angles, `[.., 1, d / 2]`, always in float32.

    `size` is d, the size of an attention head, and `theta` the base of the frequencies.
    """
    steps = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device) / size
    angles = positions[..., None, None] / theta**steps
    return angles.cos(), angles.sin()


def turned(split: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate queries or keys `[.., H, d]`; each channel of a head's first half is paired with one of its second."""
    first, second = split.float().chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1).to(split.dtype)
