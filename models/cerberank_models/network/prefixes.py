"""The beginnings that pairs of a decoder share, computed once. Legend as in `layout.py`.

A decoder's hidden states depend on earlier tokens alone. So the tokens that several pairs begin with run through the
layers once (`PrefixLayout`), and the keys and values of every layer are kept; then the rest of each pair runs, and
attends to these as well (`ContinuedLayout`). G groups of pairs have a prefix each, of P tokens at most.
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
    """Packed prefixes, one a group, which may be empty; remembers what attention was given."""

    seen: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Keys and values of each layer that has run, `[G, P, H, d]`."""

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
        """As `PackedLayout.attend`."""
        self.seen.append((self.pad(key), self.pad(value)))
        return PackedLayout.attend(self, query, key, value, dropout, window=window, causal=causal)


@dataclass(frozen=True, slots=True)
class ContinuedLayout(PackedLayout):
    """The tokens after the prefixes, packed. Each layer attends once: to what it made of the prefixes, and causally."""

    begins: Tensor
    """`[N]`: the number of tokens before each pair's first one here."""
    group: Tensor
    """`[N]`: the prefix of each pair."""
    visible: Tensor
    """`[N, 1, S, P + S]`: which tokens of the prefix and of its own each token attends to."""
    known: Iterator[tuple[Tensor, Tensor]]
    """`PrefixLayout.seen` of the layers that are still to run."""

    @classmethod
    def after(cls, prefixes: PrefixLayout, offsets: Tensor, group: Tensor) -> ContinuedLayout:
        """The layout of pairs whose rests are at `offsets[N + 1]`, behind the prefixes `group[N]`."""
        packed = PackedLayout.of(offsets)
        longest = packed.mask.shape[1]
        prefix = prefixes.mask[group][:, None, None].expand(-1, 1, longest, -1)
        own = torch.ones(longest, longest, dtype=torch.bool, device=offsets.device).tril()
        return cls(
            packed.offsets,
            packed.cells,
            packed.mask,
            packed.uniform,
            begins=prefixes.offsets.diff()[group],
            group=group,
            visible=torch.cat([prefix, own.expand(len(group), 1, -1, -1)], dim=-1),
            known=iter(prefixes.seen),
        )

    @property
    def positions(self) -> Tensor:
        """`[T]`: each token's position within its whole pair."""
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
        """Causal attention to the prefix and to the pair's own tokens. Raises ValueError for any other."""
        if window is not None or not causal:
            raise ValueError("what follows a prefix attends causally and without a window")
        keys, values = next(self.known)
        whole = (torch.cat([old[self.group], self.pad(new)], dim=1) for old, new in ((keys, key), (values, value)))
        asked, seen, mixed = (part.transpose(1, 2) for part in (self.pad(query), *whole))
        out = functional.scaled_dot_product_attention(
            asked, seen, mixed, attn_mask=self.visible, dropout_p=dropout, enable_gqa=asked.shape[1] != seen.shape[1]
        )
        return out.transpose(1, 2).flatten(0, 1)[self.cells]
