"""The layouts of the tokens of many pairs in a tensor: packed (without padding) or padded.

Legend: N is the number of pairs, S of tokens in the longest pair, T of tokens in all pairs, H of attention heads; D is
the width of hidden states, and d = D / H that of an attention head. Hidden states are `[T, D]` if packed and
`[N, S, D]` if padded; `[.., D]` means either. Only operations that mix the tokens of a pair depend on the layout;
linear layers and norms do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional

GROUP = 32
"""The number of pairs of a group of `GroupedLayout`."""

PRODUCT_KEYS = 128
"""The most keys of a pair for which attention in bf16 on a processor is computed as two matrix products. On an AMD EPYC
with avx512_bf16 a whole question of 200 or 1,000 candidates (39 tokens on average) then takes 0.95 or 0.92 of its time
with PyTorch's fused attention, and one of 200 pairs of 94 to 116 tokens 0.89 (docs/measurements.md). Longer pairs were
not measured."""


class Layout(Protocol):
    """The operations of a body, an exit or a head that depend on the layout of tokens."""

    @property
    def positions(self) -> Tensor:
        """The position of each token within its pair, counted from 0: `[T]` packed, `[1, S]` padded. Not cached."""

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
        """Attention within each pair; all tensors are `[.., H, d]`, in the layout of the hidden states.

        With a `window`, a token attends only to tokens at most `window` positions away. With `causal`, it attends only
        to itself and earlier tokens. Several heads of `query` may share one head of `key` and `value`.
        """

    def attend_first(
        self, query: Tensor, key: Tensor, value: Tensor, dropout: float, *, window: int | None = None
    ) -> Tensor:
        """Attention of each pair's first token; `query` and result are `[N, H, d]`."""

    def first(self, hidden: Tensor) -> Tensor:
        """The first token of each pair, `[N, D]`."""

    def inner(self) -> Tensor:
        """True on all tokens of a pair except the first and the last, which are special: `[T]` or `[N, S]`."""

    def last(self, hidden: Tensor) -> Tensor:
        """The last token of each pair, `[N, D]`."""

    def mean(self, hidden: Tensor) -> Tensor:
        """The mean over each pair's tokens, including special tokens, `[N, D]`."""


@dataclass(frozen=True, slots=True)
class PaddedLayout:
    """Pairs padded to a common length; `mask[N, S]` is True on real tokens."""

    mask: Tensor

    @property
    def positions(self) -> Tensor:
        """The positions `[1, S]`, which are the same in every pair."""
        return torch.arange(self.mask.shape[1], device=self.mask.device)[None, :]

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
        """Softmax attention; padding and tokens outside of the window are masked."""
        return _attention(query, key, value, self.mask[:, None, None, :], dropout, window, causal=causal)

    def attend_first(
        self, query: Tensor, key: Tensor, value: Tensor, dropout: float, *, window: int | None = None
    ) -> Tensor:
        """As `attend` for one query a pair."""
        return self.attend(query[:, None], key, value, dropout, window=window)[:, 0]

    def read(self, queries: Tensor, hidden: Tensor, scale: float) -> Tensor:
        """Attention of Q queries per pair, `[N, Q, D]`, to the hidden states as keys and values; result `[N, Q, D]`."""
        return _read(queries, hidden, self.mask[:, None, None, :], scale)

    def first(self, hidden: Tensor) -> Tensor:
        """Position 0 of each pair."""
        return hidden[:, 0]

    def inner(self) -> Tensor:
        """True on all tokens of a pair except the first and the last, `[N, S]`."""
        following = torch.cat([self.mask[:, 1:], torch.zeros_like(self.mask[:, :1])], dim=1)
        return following & (self.positions > 0)

    def last(self, hidden: Tensor) -> Tensor:
        """The last token of each pair that is not padding."""
        return hidden[torch.arange(len(hidden), device=hidden.device), self.mask.sum(dim=1) - 1]

    def mean(self, hidden: Tensor) -> Tensor:
        """The masked mean, summed in float32, because sums in float16 would overflow."""
        weight = self.mask.float()[:, :, None]
        return ((hidden.float() * weight).sum(dim=1) / weight.sum(dim=1)).to(hidden.dtype)


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Pairs one after another. Only attention is computed on a padded copy; linear layers never read padding."""

    offsets: Tensor
    """`[N + 1]`: the tokens of pair i are `offsets[i]:offsets[i + 1]`."""
    cells: Tensor
    """`[T]`: the index of each token in the padded grid of `N * S` cells."""
    mask: Tensor
    """`[N, S]`: True on real tokens."""
    tokens: Tensor
    """`[N * S]`: the index of the token in each cell of the grid, in padding that of the pair's last token."""
    uniform: bool
    """True if all pairs have the same length, so that packed and padded tensors have the same memory."""
    keys: Tensor | None = field(default=None, kw_only=True)
    """`[N, S]`: True on the tokens that other tokens attend to; None for all real tokens."""

    @classmethod
    def of(cls, offsets: Tensor) -> Self:
        """The layout of pairs with `offsets[N + 1]` (int64, on the device of the hidden states)."""
        lengths = offsets.diff()
        longest = int(lengths.max())
        places = torch.arange(longest, device=offsets.device)[None, :]
        mask = places < lengths[:, None]
        cells = mask.flatten().nonzero()[:, 0]
        tokens = torch.minimum(offsets[:-1, None] + places, offsets[1:, None] - 1).clamp(min=0).flatten()
        return cls(offsets, cells, mask, tokens, uniform=cells.numel() == mask.numel())

    @property
    def positions(self) -> Tensor:
        """The position of each token within its pair, `[T]`."""
        return self.cells % self.mask.shape[1]

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
        """Softmax attention on a padded copy."""
        query, key, value = (self.spread(each) for each in (query, key, value))
        out = _attention(query, key, value, self._attended, dropout, window, causal=causal)
        return out.flatten(0, 1).index_select(0, self.cells)

    def attend_first(
        self, query: Tensor, key: Tensor, value: Tensor, dropout: float, *, window: int | None = None
    ) -> Tensor:
        """As `attend` for one query a pair."""
        return _attention(query[:, None], self.spread(key), self.spread(value), self._attended, dropout, window)[:, 0]

    def read(self, queries: Tensor, hidden: Tensor, scale: float) -> Tensor:
        """As `PaddedLayout.read`, on a padded copy."""
        return _read(queries, self.spread(hidden), self._attended, scale)

    @property
    def _attended(self) -> Tensor | None:
        """The mask of attention, `[N, 1, 1, S]`; None if every cell is attended to."""
        if self.keys is None:
            return None if self.uniform else self.mask[:, None, None, :]
        return self.keys[:, None, None, :]

    def first(self, hidden: Tensor) -> Tensor:
        """The token at each pair's offset."""
        return hidden[self.offsets[:-1]]

    def inner(self) -> Tensor:
        """True on all tokens of a pair except the first and the last, `[T]`."""
        return between_ends(self.offsets, len(self.cells))

    def last(self, hidden: Tensor) -> Tensor:
        """The token before the next pair's offset."""
        return hidden[self.offsets[1:] - 1]

    def mean(self, hidden: Tensor) -> Tensor:
        """The mean over each pair's tokens, summed in float32."""
        return pair_means(hidden, self.offsets)

    def spread(self, packed: Tensor) -> Tensor:
        """Pad `[T, ...]` to `[N, S, ...]` with copies of each pair's last token, for operations that mask padding."""
        pairs, longest = self.mask.shape
        if self.uniform:
            return packed.reshape(pairs, longest, *packed.shape[1:])
        return packed.index_select(0, self.tokens).reshape(pairs, longest, *packed.shape[1:])

    def pad(self, packed: Tensor) -> Tensor:
        """Pad `[T, ...]` to `[N, S, ...]` with zeros."""
        pairs, longest = self.mask.shape
        if self.uniform:
            return packed.reshape(pairs, longest, *packed.shape[1:])
        # Masking the copies of `spread` takes 1.8 times as long, and 6 times backwards (120 pairs, one thread).
        padded = packed.new_zeros((pairs * longest, *packed.shape[1:]))
        filled = padded.index_copy(0, self.cells, packed)
        return filled.reshape(pairs, longest, *packed.shape[1:])


@dataclass(frozen=True, slots=True)
class GroupedLayout(PackedLayout):
    """Packed pairs whose neighbours have similar lengths. Attention pads each group of neighbours by itself.

    The work of attention grows with the square of the padded length. If all pairs are padded to the longest, it can
    cost more than all linear layers: a training step of 120 pairs, the longest of 128 tokens, is 2.1 times as fast in
    groups (docs/measurements.md). Any order gives the same results, but more padding.
    """

    groups: tuple[PackedLayout, ...] = field(kw_only=True)
    """The layout of each `GROUP` neighbours, the last perhaps of fewer."""

    @classmethod
    def of(cls, offsets: Tensor) -> Self:
        """The layout of pairs with `offsets[N + 1]`."""
        packed = PackedLayout.of(offsets)
        begins = range(0, len(offsets) - 1, GROUP)
        groups = tuple(PackedLayout.of(offsets[begin : begin + GROUP + 1] - offsets[begin]) for begin in begins)
        return cls(packed.offsets, packed.cells, packed.mask, packed.tokens, packed.uniform, groups=groups)

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
        """Softmax attention, one group after another."""
        parts = zip(self.groups, self._split(query), self._split(key), self._split(value), strict=True)
        return torch.cat(
            [
                group.attend(queries, keys, values, dropout, window=window, causal=causal)
                for group, queries, keys, values in parts
            ]
        )

    def attend_first(
        self, query: Tensor, key: Tensor, value: Tensor, dropout: float, *, window: int | None = None
    ) -> Tensor:
        """As `attend` for one query a pair."""
        parts = zip(self.groups, torch.split(query, GROUP), self._split(key), self._split(value), strict=True)
        return torch.cat(
            [
                group.attend_first(queries, keys, values, dropout, window=window)
                for group, queries, keys, values in parts
            ]
        )

    def read(self, queries: Tensor, hidden: Tensor, scale: float) -> Tensor:
        """As `PackedLayout.read`, one group after another."""
        parts = zip(self.groups, torch.split(queries, GROUP), self._split(hidden), strict=True)
        return torch.cat([group.read(wide, states, scale) for group, wide, states in parts])

    def _split(self, packed: Tensor) -> Sequence[Tensor]:
        """The tokens of each group."""
        return torch.split(packed, [len(group.cells) for group in self.groups])


def pair_means(hidden: Tensor, offsets: Tensor) -> Tensor:
    """The mean over each packed pair's tokens, `[N, ..]` of `[T, ..]`, summed in float32 pair by pair.

    Other pairs do not change the rounding. A padded copy takes six times as long (1,120 pairs of 38 tokens, 384 wide).
    """
    # `unsafe` skips a check that would wait for a GPU.
    return torch.segment_reduce(hidden.float(), "mean", offsets=offsets, axis=0, unsafe=True).to(hidden.dtype)


def offsets_of(lengths: Tensor) -> Tensor:
    """The offsets `[N + 1]` of N packed sequences with these lengths."""
    return functional.pad(lengths.cumsum(0), (1, 0))


def by_length(offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The order of N pairs with `offsets[N + 1]` by ascending length, `[N]`.

    Then the order of their tokens, `[T]`, and the offsets in that order, `[N + 1]`.
    """
    lengths, order = offsets.diff().sort(stable=True)
    ordered = offsets_of(lengths)
    moved = (offsets[:-1][order] - ordered[:-1]).repeat_interleave(lengths)
    return order, torch.arange(len(moved), device=offsets.device) + moved, ordered


def between_ends(offsets: Tensor, tokens: int) -> Tensor:
    """True on all tokens of a packed pair except the first and the last, `[tokens]`; pairs may be empty."""
    inner = torch.ones(tokens, dtype=torch.bool, device=offsets.device)
    inner[offsets[:-1].clamp(max=tokens - 1)] = False
    inner[offsets[1:] - 1] = False
    return inner


def near(query: Tensor, key: Tensor, window: int) -> Tensor:
    """True if a token of `key`, `[N, S, H, d]`, is within the window of a token of `query`, `[N, Q, H, d]`: `[Q, S]`.

    Both tensors begin with their pair's first token.
    """
    queries, keys = (torch.arange(part.shape[1], device=key.device) for part in (query, key))
    return (queries[:, None] - keys[None, :]).abs() <= window


def _attention(  # noqa: PLR0917 - like PyTorch's function
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    window: int | None,
    *,
    causal: bool = False,
) -> Tensor:
    """Scaled dot-product attention on `[N, S, H, d]`; result `[N, S, H, d]`."""
    if causal:  # padding comes after the tokens of a pair, so that no token attends to it
        mask = None
    if window is not None and key.shape[1] > window + 1:  # shorter pairs fit into the window
        local = near(query, key, window)
        mask = local if mask is None else mask & local
    plain = not (causal or dropout or torch.is_grad_enabled()) and query.shape[2] == key.shape[2]
    if plain and query.dtype == torch.bfloat16 and query.device.type == "cpu" and key.shape[1] <= PRODUCT_KEYS:
        return _attention_by_products(query, key, value, mask)
    out = functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=causal,
        enable_gqa=query.shape[2] != key.shape[2],
    )
    return out.transpose(1, 2)


def _attention_by_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """The attention of `_attention` as products over all pairs and heads; scores are rounded to the queries' type."""
    pairs, _, heads, size = query.shape
    queries, keys, values = (part.transpose(1, 2).flatten(0, 1) for part in (query, key, value))
    bias = query.new_zeros(1, 1, 1)
    if mask is not None:
        masked = query.new_zeros(mask.shape).masked_fill(~mask, torch.finfo(query.dtype).min)
        bias = masked.expand(pairs, heads, -1, -1).flatten(0, 1)
    scores = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=size**-0.5)
    weights = scores.float().softmax(dim=-1).to(scores.dtype)  # in bf16 up to twice as long
    return torch.bmm(weights, values).view(pairs, heads, -1, size).transpose(1, 2)


def _read(queries: Tensor, hidden: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Attention with one head as wide as the hidden states: queries `[N, Q, D]` attend to `[N, S, D]`."""
    keys = hidden[:, None]
    out: Tensor = functional.scaled_dot_product_attention(queries[:, None], keys, keys, attn_mask=mask, scale=scale)
    return out[:, 0]
