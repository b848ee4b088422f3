"""Packed attention without a padded copy: PyTorch's variable-length kernel, for half precision on CUDA.

Legend as in `layout.py`. The kernel (`torch.nn.attention.varlen`, FlashAttention or cuDNN inside) reads the packed
tokens as they lie; nothing here waits for the device, so that a stage can be captured as a CUDA graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from cerberank_models.network.layout import between_ends

KERNEL_PRECISIONS = (torch.float16, torch.bfloat16)
KERNEL_WIDTH = 8
"""The kernel takes head sizes that are a multiple of this, up to `LARGEST_HEAD`."""
LARGEST_HEAD = 256


@dataclass(frozen=True, slots=True)
class Spans:
    """The places of N pairs in packed queries and keys, by the arguments of PyTorch's kernel."""

    query_offsets: Tensor
    """`[N + 1]`, int32: pair i owns the queries `query_offsets[i]:query_offsets[i + 1]`."""
    key_offsets: Tensor
    """`[N + 1]`, int32: the same for keys and values."""
    longest_query: int
    """No pair has more queries."""
    longest_key: int
    """No pair has more keys."""
    window: tuple[int, int] = (-1, -1)
    """Tokens that a query sees to the left and to the right, itself not counted; -1 is without bound."""


VarlenAttention = Callable[[Tensor, Tensor, Tensor, Spans], Tensor]
"""Softmax attention within each pair: queries `[Tq, H, d]`, keys and values `[T, H, d]`, and where they lie."""


def kernel_for(
    device: torch.device, precision: torch.dtype, head_size: int, *, windows: bool = False
) -> VarlenAttention | None:
    """The kernel, where the device and the ranker's shape allow it; None means `PackedLayout`.

    `windows` says that the ranker needs local attention, which not every version of PyTorch's kernel has.
    """
    if device.type != "cuda" or precision not in KERNEL_PRECISIONS:
        return None
    if head_size % KERNEL_WIDTH or head_size > LARGEST_HEAD:
        return None
    # A backend says so, where it needs a device that is not there; FlashAttention needs Ampere.
    if not torch.cuda.is_available() or torch.cuda.get_device_capability(device) < (8, 0):
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - PyTorch calls it a prototype
    except ImportError:
        return None
    if windows and "window_size" not in inspect.signature(varlen_attn).parameters:
        return None
    attention = cast(Callable[..., Tensor], varlen_attn)

    def kernel(query: Tensor, key: Tensor, value: Tensor, spans: Spans) -> Tensor:
        # The arguments that PyTorch 2.10 to 2.13 have in common; not all of these know windows.
        near = {} if spans.window == (-1, -1) else {"window_size": spans.window}
        offsets, longest = (spans.query_offsets, spans.key_offsets), (spans.longest_query, spans.longest_key)
        return attention(query, key, value, *offsets, *longest, **near)

    return kernel


@dataclass(frozen=True, slots=True)
class VarlenLayout:
    """Pairs one after another; empty pairs and tokens that belong to no pair may follow, to fill a fixed size.

    The results of such pairs and tokens are meaningless, and affect no other row.
    """

    offsets: Tensor
    """`[N + 1]`, int32, on the device."""
    longest: int
    """No pair has more tokens; a larger bound changes nothing but the kernel's grid."""
    kernel: VarlenAttention
    tokens: int
    """T, including tokens that belong to no pair."""

    @property
    def positions(self) -> Tensor:
        """`[T]`: each token's position within its pair; below `longest` also for tokens that belong to no pair."""
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
        """Softmax attention; raises ValueError for `dropout` and `causal`, which the kernel is not asked for."""
        if dropout or causal:
            raise ValueError("variable-length attention is for encoders at inference: it has no dropout, nor is causal")
        near = (-1, -1) if window is None or window + 1 >= self.longest else (window, window)
        return self.kernel(query, key, value, Spans(self.offsets, self.offsets, self.longest, self.longest, near))

    def attend_first(
        self, query: Tensor, key: Tensor, value: Tensor, dropout: float, *, window: int | None = None
    ) -> Tensor:
        """As `attend` with one query a pair."""
        if window is not None and window + 1 < self.longest:
            # The kernel would place a pair's only query at its last key. So every token asks what the first one asks.
            _, pair = self._owners()
            return self.first(self.attend(query[pair.clamp(max=len(query) - 1)], key, value, dropout, window=window))
        if dropout:
            raise ValueError("variable-length attention is for inference: it has no dropout")
        ones = torch.arange(len(self.offsets), dtype=torch.int32, device=self.offsets.device)
        return self.kernel(query, key, value, Spans(ones, self.offsets, 1, self.longest))

    def _owners(self) -> tuple[Tensor, Tensor]:
        """`[T]` twice: the tokens' numbers, and the pair of each; N for tokens that belong to no pair."""
        token = torch.arange(self.tokens, dtype=torch.int32, device=self.offsets.device)
        return token, torch.searchsorted(self.offsets, token, right=True) - 1

    def first(self, hidden: Tensor) -> Tensor:
        """The token at each pair's offset."""
        # The offset of an empty pair at the very end would be out of range.
        return hidden[self.offsets[:-1].clamp(max=len(hidden) - 1)]

    def inner(self) -> Tensor:
        """`[T]`: True on the tokens between the first and the last one of each pair."""
        return between_ends(self.offsets, self.tokens)

    def last(self, hidden: Tensor) -> Tensor:
        """The token before the next pair's offset."""
        return hidden[self.offsets[1:] - 1]

    def mean(self, hidden: Tensor) -> Tensor:
        """Segment mean, summed in float32."""
        # `unsafe` skips a check that would wait for the device.
        return torch.segment_reduce(hidden.float(), "mean", offsets=self.offsets, axis=0, unsafe=True).to(hidden.dtype)
