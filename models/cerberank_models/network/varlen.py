"""Attention on packed tokens without a padded copy, by PyTorch's variable-length kernel in half precision on CUDA.

Legend as in `layout.py`. The kernel is `torch.nn.attention.varlen`, which uses FlashAttention or cuDNN. Nothing in this
module waits for the device, so that a stage can be captured as a CUDA graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from cerberank_models.network.layout import between_ends, pair_means

KERNEL_PRECISIONS = (torch.float16, torch.bfloat16)
KERNEL_WIDTH = 8
"""The kernel supports head sizes that are a multiple of this, up to `LARGEST_HEAD`."""
LARGEST_HEAD = 256


@dataclass(frozen=True, slots=True)
class Spans:
    """The places of N pairs in packed queries and keys, as arguments for PyTorch's kernel."""

    query_offsets: Tensor
    """`[N + 1]`, int32: the queries of pair i are `query_offsets[i]:query_offsets[i + 1]`."""
    key_offsets: Tensor
    """`[N + 1]`, int32: the same for keys and values."""
    longest_query: int
    """An upper bound of the queries of a pair."""
    longest_key: int
    """An upper bound of the keys of a pair."""
    window: tuple[int, int] = (-1, -1)
    """The most tokens before and after a query that it attends to, not counting itself; -1 for no limit."""


VarlenAttention = Callable[[Tensor, Tensor, Tensor, Spans], Tensor]
"""Computes softmax attention within each pair, from queries `[Tq, H, d]`, keys and values `[T, H, d]`, and spans."""


def kernel_for(
    device: torch.device, precision: torch.dtype, head_size: int, *, windows: bool = False
) -> VarlenAttention | None:
    """The kernel, if it supports the device and the ranker's shape; else None, and `PackedLayout` is to be used.

    `windows` is True for a ranker with local attention, which not every version of PyTorch's kernel supports.
    """
    if device.type != "cuda" or precision not in KERNEL_PRECISIONS:
        return None
    if head_size % KERNEL_WIDTH or head_size > LARGEST_HEAD:
        return None
    # FlashAttention needs Ampere. A missing device is not an error here, because the backend reports it.
    if not torch.cuda.is_available() or torch.cuda.get_device_capability(device) < (8, 0):
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - a prototype, which PyTorch may lack
    except ImportError:
        return None
    if windows and "window_size" not in inspect.signature(varlen_attn).parameters:
        return None
    attention = cast(Callable[..., Tensor], varlen_attn)

    def kernel(query: Tensor, key: Tensor, value: Tensor, spans: Spans) -> Tensor:
        # The arguments that PyTorch 2.10 to 2.13 have in common; not all of these versions support windows.
        near = {} if spans.window == (-1, -1) else {"window_size": spans.window}
        offsets, longest = (spans.query_offsets, spans.key_offsets), (spans.longest_query, spans.longest_key)
        return attention(query, key, value, *offsets, *longest, **near)

    return kernel


@dataclass(frozen=True, slots=True)
class VarlenLayout:
    """Pairs one after another. Empty pairs and tokens outside of pairs may follow, to fill a fixed size.

    The results of such pairs and tokens are meaningless, and do not affect other rows.
    """

    offsets: Tensor
    """`[N + 1]`, int32, on the device."""
    longest: int
    """An upper bound of the tokens of a pair. It affects only the size of the kernel's grid."""
    kernel: VarlenAttention
    tokens: int
    """T, including tokens outside of pairs."""

    @property
    def positions(self) -> Tensor:
        """The position of each token within its pair, `[T]`; below `longest` also for tokens outside of pairs."""
        token, pair = self._owners()
        return (token - self.offsets[pair]).clamp(max=self.longest - 1)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout: float,
        *,
        window: int | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Softmax attention. Raises ValueError for `dropout` and `causal`, which this layout does not support."""
        if dropout or causal:
            raise ValueError("variable-length attention is for encoders at inference: it has no dropout, nor is causal")
        near = (-1, -1) if window is None or window + 1 >= self.longest else (window, window)
        return self.kernel(query, key, value, Spans(self.offsets, self.offsets, self.longest, self.longest, near))

    def attend_first(
        self, query: Tensor, key: Tensor, value: Tensor, dropout: float, *, window: int | None = None
    ) -> Tensor:
        """As `attend` with one query a pair."""
        if window is not None and window + 1 < self.longest:
            # The kernel would align a pair's only query with its last key, so the first token's query is repeated for
            # every token.
            _, pair = self._owners()
            return self.first(self.attend(query[pair.clamp(max=len(query) - 1)], key, value, dropout, window=window))
        if dropout:
            raise ValueError("variable-length attention is for inference: it has no dropout")
        ones = torch.arange(len(self.offsets), dtype=torch.int32, device=self.offsets.device)
        return self.kernel(query, key, value, Spans(ones, self.offsets, 1, self.longest))

    def _owners(self) -> tuple[Tensor, Tensor]:
        """The number of each token, and its pair or N for tokens outside of pairs, `[T]` both."""
        token = torch.arange(self.tokens, dtype=torch.int32, device=self.offsets.device)
        return token, torch.searchsorted(self.offsets, token, right=True) - 1

    def first(self, hidden: Tensor) -> Tensor:
        """The token at each pair's offset."""
        # Clamped, because the offset of an empty pair at the end is out of range.
        return hidden[self.offsets[:-1].clamp(max=len(hidden) - 1)]

    def inner(self) -> Tensor:
        """True on all tokens of a pair except the first and the last, `[T]`."""
        return between_ends(self.offsets, self.tokens)

    def last(self, hidden: Tensor) -> Tensor:
        """The token before the next pair's offset."""
        return hidden[self.offsets[1:] - 1]

    def mean(self, hidden: Tensor) -> Tensor:
        """The mean over each pair's tokens, summed in float32."""
        return pair_means(hidden, self.offsets)
