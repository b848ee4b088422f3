"""Variable-length attention pair by pair, by its definition; what the kernel leaves undefined is NaN here."""

from __future__ import annotations

import torch
from torch import Tensor


def varlen_oracle(  # noqa: PLR0917 - PyTorch's own order
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    longest_query: int,
    longest_key: int,
    *,
    window_size: tuple[int, int] = (-1, -1),
) -> Tensor:
    """As `torch.nn.attention.varlen.varlen_attn`: shapes `[Tq, H, d]` and `[T, H, d]`; refuses what that would.

    A window counts from a pair's last query and last key, as FlashAttention aligns them.
    """
    assert query_offsets.dtype == key_offsets.dtype == torch.int32
    assert len(query_offsets) == len(key_offsets)
    assert int(query_offsets.diff().max()) <= longest_query
    assert int(key_offsets.diff().max()) <= longest_key
    out = torch.full_like(query, torch.nan)
    for pair in range(len(query_offsets) - 1):
        rows = slice(int(query_offsets[pair]), int(query_offsets[pair + 1]))
        seen = slice(int(key_offsets[pair]), int(key_offsets[pair + 1]))
        logits = torch.einsum("qhd,khd->hqk", query[rows], key[seen]) / query.shape[-1] ** 0.5
        queries, keys = logits.shape[1:]
        ahead = torch.arange(keys)[None, :] - torch.arange(queries)[:, None] - (keys - queries)
        far = (ahead < -window_size[0]) | (ahead > window_size[1])
        logits = logits if window_size == (-1, -1) else logits.masked_fill(far, -torch.inf)
        out[rows] = torch.einsum("hqk,khd->qhd", logits.softmax(-1), value[seen])
    return out
