"""Computes the k heads of CERBERUS as batched operations, with one kernel launch instead of k.

Legend as in `layout.py`; k is the number of heads. Hidden states are `[k, T, D]`, and attention has k * H attention
heads. The modules are those of one head (`heads.Head`), with linear layers and norms that hold all heads' weights.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.network.heads import Head
from cerberank_models.network.layout import Layout

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def stackable(head: nn.Module) -> bool:
    """True if all weights of `head` belong to linear layers with bias and to LayerNorms, which can be stacked."""
    return all(
        isinstance(part, nn.LayerNorm | nn.Linear) and part.bias is not None
        for part in head.modules()
        if any(True for _ in part.parameters(recurse=False))
    )


class StackedHeads(nn.Module):
    """Computes heads of the same shape together, with the same results within rounding."""

    def __init__(self, heads: Sequence[Head]) -> None:
        """Copy the weights of `heads`, one or more; each must be `stackable`."""
        super().__init__()
        self.heads = len(heads)
        self.head = _stacked(heads)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute logits `[N, k]` from the body's packed output `[T, D]`."""
        logits: Tensor = self.head(hidden.expand(self.heads, *hidden.shape), _StackedLayout(layout))
        return logits.T


def _stacked(modules: Sequence[ModuleT]) -> ModuleT:
    """A copy of the first module, in which linear layers and norms hold the weights of all modules."""
    stack = copy.deepcopy(modules[0])
    for name, module in modules[0].named_modules():
        parts = [other.get_submodule(name) for other in modules]
        if isinstance(module, nn.Linear):
            stack.set_submodule(name, _StackedLinear([part for part in parts if isinstance(part, nn.Linear)]))
        elif isinstance(module, nn.LayerNorm):
            stack.set_submodule(name, _StackedNorm([part for part in parts if isinstance(part, nn.LayerNorm)]))
    return stack


class _StackedLinear(nn.Module):
    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.stack([linear.weight.detach() for linear in linears]))  # [k, out, in]
        self.bias = nn.Buffer(torch.stack([linear.bias.detach() for linear in linears]))  # [k, out]

    def forward(self, hidden: Tensor) -> Tensor:
        """Map `[k, M, in]` to `[k, M, out]`, in the precision of the weights (`precision.LastLinear`)."""
        hidden = hidden.to(self.weight.dtype)
        if len(hidden) > 1 and not hidden.stride(0):
            # All heads read the same rows: one product, whose result [M, k * out] is how attention reads keys and
            # values, so that neither the bias is written out first nor the result is copied.
            wide = functional.linear(hidden[0], self.weight.flatten(0, 1), self.bias.flatten())
            return wide.view(-1, *self.bias.shape).transpose(0, 1)
        return torch.baddbmm(self.bias[:, None], hidden, self.weight.mT)


class _StackedNorm(nn.Module):
    def __init__(self, norms: Sequence[nn.LayerNorm]) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.stack([norm.weight.detach() for norm in norms])[:, None])  # [k, 1, D]
        self.bias = nn.Buffer(torch.stack([norm.bias.detach() for norm in norms])[:, None])
        self.epsilon = norms[0].eps

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise `[k, M, D]` over D."""
        normal = functional.layer_norm(hidden, hidden.shape[-1:], eps=self.epsilon)
        return torch.addcmul(self.bias, normal, self.weight)


@dataclass(frozen=True, slots=True)
class _StackedLayout:
    """Adapts a packed layout: `[k, T, ...]` becomes `[T, k, ...]`, and k heads of H attention heads become k * H."""

    layout: Layout

    @property
    def positions(self) -> Tensor:
        """The layout's positions `[T]`, which broadcast over the k heads."""
        return self.layout.positions

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
        wide = _side_by_side(query), _side_by_side(key), _side_by_side(value)
        mixed = self.layout.attend(*wide, dropout, window=window, causal=causal)
        return _apart(mixed, len(query))

    def attend_first(
        self, query: Tensor, key: Tensor, value: Tensor, dropout: float, *, window: int | None = None
    ) -> Tensor:
        wide = _side_by_side(query), _side_by_side(key), _side_by_side(value)
        mixed = self.layout.attend_first(*wide, dropout, window=window)
        return _apart(mixed, len(query))

    def first(self, hidden: Tensor) -> Tensor:
        return self.layout.first(hidden.transpose(0, 1)).transpose(0, 1)

    def inner(self) -> Tensor:
        return self.layout.inner()

    def last(self, hidden: Tensor) -> Tensor:
        return self.layout.last(hidden.transpose(0, 1)).transpose(0, 1)

    def mean(self, hidden: Tensor) -> Tensor:
        return self.layout.mean(hidden.transpose(0, 1)).transpose(0, 1)


def _side_by_side(split: Tensor) -> Tensor:
    """Reshape `[k, M, H, d]` to `[M, k * H, d]`."""
    return split.transpose(0, 1).flatten(1, 2)


def _apart(mixed: Tensor, heads: int) -> Tensor:
    """Reshape `[M, k * H, d]` to `[k, M, H, d]`."""
    return mixed.reshape(len(mixed), heads, -1, mixed.shape[-1]).transpose(0, 1)
