"""Computes the prefixes that pairs of a decoder share only once. Legend as in `layout.py`.

A decoder's hidden states depend only on earlier tokens. So the tokens that several pairs begin with, their prefix, run
through the layers once (`PrefixLayout`), and the keys and values of every layer are kept. Then the rest of each pair
runs through the layers, and attends to these keys and values too (`ContinuedLayout`). There are G groups of pairs; each
group has one prefix, of at most P tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from cerberank_models.network.layout import PackedLayout


@dataclass(frozen=True, slots=True)
class PrefixLayout(PackedLayout):
    """Packed prefixes, one per group, which may be empty. Keeps the keys and values that attention was called with."""

    seen: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """The keys and values, `[G, P, H, d]`, of each layer that has run."""

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
        """Attention as in `PackedLayout.attend`, after keeping key and value."""
        self.seen.append((self.pad(key), self.pad(value)))
        return PackedLayout.attend(self, query, key, value, dropout, window=window, causal=causal)


@dataclass(frozen=True, slots=True)
class ContinuedLayout(PackedLayout):
    """The packed tokens after the prefixes. Attention reads the prefix's keys and values, and the pair's own causally.

    `attend` must be called once per layer, in the order of layers.
    """

    begins: Tensor
    """`[N]`: the number of tokens in each pair's prefix."""
    group: Tensor
    """`[N]`: the index of each pair's prefix."""
    visible: Tensor
    """`[N, 1, S, P + S]`: True on the tokens of the prefix and of the pair that each token attends to."""
    keys_and_values: Iterator[tuple[Tensor, Tensor]]
    """`PrefixLayout.seen` of the layers that have not run yet."""

    @classmethod
    def after(cls, prefixes: PrefixLayout, offsets: Tensor, group: Tensor) -> ContinuedLayout:
        """The layout of tokens at `offsets[N + 1]`, which follow the prefixes `group[N]`."""
        packed = PackedLayout.of(offsets)
        longest = packed.mask.shape[1]
        prefix = prefixes.mask[group][:, None, None].expand(-1, 1, longest, -1)
        within_pair = torch.ones(longest, longest, dtype=torch.bool, device=offsets.device).tril()
        return cls(
            packed.offsets,
            packed.cells,
            packed.mask,
            packed.tokens,
            packed.uniform,
            begins=prefixes.offsets.diff()[group],
            group=group,
            visible=torch.cat([prefix, within_pair.expand(len(group), 1, -1, -1)], dim=-1),
            keys_and_values=iter(prefixes.seen),
        )

    @property
    def positions(self) -> Tensor:
        """The position of each token within its whole pair, `[T]`."""
        longest = self.mask.shape[1]
        return self.cells % longest + self.begins[self.cells // longest]

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
        """Causal attention to the prefix and to the pair's own tokens. Raises ValueError for other attention."""
        if window is not None or not causal:
            raise ValueError("what follows a prefix attends causally and without a window")
        keys, values = next(self.keys_and_values)
        whole = (torch.cat([old[self.group], self.pad(new)], dim=1) for old, new in ((keys, key), (values, value)))
        queries, all_keys, all_values = (part.transpose(1, 2) for part in (self.pad(query), *whole))
        out = functional.scaled_dot_product_attention(
            queries,
            all_keys,
            all_values,
            attn_mask=self.visible,
            dropout_p=dropout,
            enable_gqa=queries.shape[1] != all_keys.shape[1],
        )
        return out.transpose(1, 2).flatten(0, 1)[self.cells]
