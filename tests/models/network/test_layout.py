"""Attention of `PackedLayout` and `GroupedLayout` in bf16 on a processor, against PyTorch's in float32."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cerberank_models.network.layout import GROUP, PRODUCT_KEYS, GroupedLayout, PackedLayout

HEADS, SIZE = 3, 8

BOUND = 0.1
"""Scores below 8 are rounded by at most 1/64, because bf16 has 8 significant bits. So weights change by 1.6 %, and
results, which are means of values below 4, by 0.06. Rounding of weights and results adds a quarter of that."""


def expected(parts: list[Tensor], offsets: list[int], window: int | None) -> Tensor:
    """Attention in float32 of each pair by itself."""
    rows = []
    for begin, end in pairwise(offsets):
        query, key, value = (part[begin:end].float().transpose(0, 1) for part in parts)
        distance = (torch.arange(end - begin)[:, None] - torch.arange(end - begin)[None, :]).abs()
        mask = distance <= (end if window is None else window)
        rows.append(functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(0, 1))
    return torch.cat(rows)


@pytest.mark.parametrize("layout", [PackedLayout, GroupedLayout])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("longest", [9, PRODUCT_KEYS, PRODUCT_KEYS + 1])
@torch.inference_mode()
def test_attention_in_bf16_is_that_of_float32(layout: type[PackedLayout], window: int | None, longest: int) -> None:
    lengths = [1 + place * 7 % 11 for place in range(GROUP + 5)] + [longest]
    offsets = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    generator = torch.Generator().manual_seed(longest)
    parts = [torch.randn(offsets[-1], HEADS, SIZE, generator=generator).bfloat16() for _ in range(3)]
    found = layout.of(torch.tensor(offsets)).attend(parts[0], parts[1], parts[2], 0.0, window=window)
    assert found.dtype == torch.bfloat16
    assert (found.float() - expected(parts, offsets, window)).abs().max() < BOUND


@torch.inference_mode()
def test_equally_long_pairs_attend_alike_in_bf16() -> None:
    """They need neither padding nor a mask."""
    offsets = [0, 6, 12, 18]
    parts = [torch.randn(18, HEADS, SIZE, generator=torch.Generator().manual_seed(1)).bfloat16() for _ in range(3)]
    found = PackedLayout.of(torch.tensor(offsets)).attend(parts[0], parts[1], parts[2], 0.0)
    assert (found.float() - expected(parts, offsets, None)).abs().max() < BOUND
