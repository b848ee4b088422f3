"""Variable-length attention pair by pair, by its definition; what the kernel leaves undefined is NaN here."""

from __future__ import annotations

import torch
from torch import Tensor

from cerberank_models.network.varlen import Spans


def varlen_oracle(query: Tensor, key: Tensor, value: Tensor, spans: Spans) -> Tensor:
    """As `torch.nn.attention.varlen.varlen_attn`: shapes `[Tq, H, d]` and `[T, H, d]`; refuses what that would.

    A window counts from a pair's last query and last key, as FlashAttention aligns them.
    """
    query_offsets, key_offsets = spans.query_offsets, spans.key_offsets
    assert query_offsets.dtype == key_offsets.dtype == torch.int32
    assert len(query_offsets) == len(key_offsets)
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    assert int(query_offsets.diff().max()) <= spans.longest_query
    assert int(key_offsets.diff().max()) <= spans.longest_key
    out = torch.full_like(query, torch.nan)
    for pair in range(len(query_offsets) - 1):
        rows = slice(int(query_offsets[pair]), int(query_offsets[pair + 1]))
        seen = slice(int(key_offsets[pair]), int(key_offsets[pair + 1]))
        logits = torch.einsum("qhd,khd->hqk", query[rows], key[seen]) / query.shape[-1] ** 0.5
        queries, keys = logits.shape[1:]
        ahead = torch.arange(keys)[None, :] - torch.arange(queries)[:, None] - (keys - queries)
        far = (ahead < -spans.window[0]) | (ahead > spans.window[1])
        logits = logits if spans.window == (-1, -1) else logits.masked_fill(far, -torch.inf)
        out[rows] = torch.einsum("hqk,khd->qhd", logits.softmax(-1), value[seen])
    return out
