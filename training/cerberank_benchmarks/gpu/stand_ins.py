"""Stand-ins for a GPU's attention kernel and graph capture, for machines without a GPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from cerberank_models.backends.cuda_graphs import Compute
from cerberank_models.network.varlen import Spans


def sdpa_kernel(query: Tensor, key: Tensor, value: Tensor, spans: Spans) -> Tensor:
    """`VarlenAttention` by PyTorch's attention, pair by pair; the results of tokens without a pair are NaN.

    Raises ValueError for local attention, which the benchmark's networks do not have.
    """
    if spans.window != (-1, -1):
        raise ValueError("this stand-in has no local attention")
    out = torch.full_like(query, torch.nan)
    starts, ends = spans.query_offsets.tolist(), spans.key_offsets.tolist()
    for pair in range(len(starts) - 1):
        rows, seen = slice(starts[pair], starts[pair + 1]), slice(ends[pair], ends[pair + 1])
        if rows.start < rows.stop and seen.start < seen.stop:
            own, keys, values = (part.transpose(0, 1)[None] for part in (query[rows], key[seen], value[seen]))
            out[rows] = functional.scaled_dot_product_attention(own, keys, values)[0].transpose(0, 1)
    return out


def written_again(compute: Compute) -> Compute:
    """`Capture` that behaves like a CUDA graph: every replay writes to the tensors that the capture created."""
    fixed = compute()

    def replay() -> tuple[Tensor, Tensor]:
        for tensor, value in zip(fixed, compute(), strict=True):
            tensor.copy_(value)
        return fixed

    return replay
