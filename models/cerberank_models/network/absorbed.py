"""Computes heads with a tenth of the work, by moving the key and value projections to attention's queries and results.

The results are the same within rounding. The keys and values must be linear in the hidden states (`Body.linear_keys`).

A head's last layer has one query per pair, from the first token. Legend as in `layout.py`. For one attention head with
the query q, and with keys W h + b and values V h + c from the tokens' hidden states h:

    q . (W h + b) = (W^T q) . h + q . b        the last term is the same for every token, and cancels in the softmax
    sum_s p_s (V h_s + c) = V (sum_s p_s h_s) + c        because the p add up to 1

So both projections are computed once per pair instead of once per token, and all k heads read the same hidden states in
one attention operation. At 48 tokens, three heads cost less than a tenth of a body layer.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from cerberank_models.network.bodies.body import LinearKeysLayer
from cerberank_models.network.heads import Head
from cerberank_models.network.layout import Layout, PackedLayout, PaddedLayout
from cerberank_models.network.ranking_network import RankingNetwork


def can_absorb(ranker: RankingNetwork) -> bool:
    """True if the heads have a layer whose key and value projections can be absorbed.

    This is not possible if the layer runs at several depths of a head, because all but the last depth compute every
    token, or if the classifier reads the mean of all tokens.
    """
    architecture, body = ranker.config.architecture, ranker.encoder
    alone = architecture.head_layers == 1 or not body.shared_layers
    deep = architecture.heads > 0 and architecture.head_layers > 0
    return body.linear_keys and architecture.classifier_pooling == "first" and deep and alone


class AbsorbedHeads(nn.Module):
    """Computes all heads together, with the same results within rounding. For inference only: it has no dropout."""

    def __init__(self, heads: nn.ModuleList) -> None:
        """Share the modules of `heads`. Each head must have a layer, with linear keys."""
        super().__init__()
        self.heads = heads

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute logits `[N, k]` from the body's output `[.., D]`. Raises TypeError for a layout without `read`."""
        if not isinstance(layout, PaddedLayout | PackedLayout):
            raise TypeError(f"{type(layout).__name__} cannot be read by wide queries")
        heads = [head for head in self.heads if isinstance(head, Head)]
        layers = [cast(LinearKeysLayer, head.last_layer) for head in heads]
        below = [head.below_last(hidden, layout) for head in heads]
        firsts = [layout.first(states) for states in below]
        queries = [_wide_queries(layer, first) for layer, first in zip(layers, firsts, strict=True)]
        scale = float(queries[0].shape[1] / hidden.shape[-1]) ** 0.5
        if all(states is hidden for states in below):
            mixed = list(layout.read(torch.cat(queries, dim=1), hidden, scale).chunk(len(heads), dim=1))
        else:
            mixed = [layout.read(wide, states, scale) for wide, states in zip(queries, below, strict=True)]
        logits = [
            head.classify(layer.finish(first, _values(layer, seen)))
            for head, layer, first, seen in zip(heads, layers, firsts, mixed, strict=True)
        ]
        return torch.stack(logits, dim=1)


def _wide_queries(layer: LinearKeysLayer, first: Tensor) -> Tensor:
    """Compute `W^T q` of every attention head, `[N, H, D]`, from the first tokens `[N, D]`."""
    query = layer.query(first).reshape(first.shape[0], layer.attention_heads, -1)
    weight = layer.key.weight.reshape(layer.attention_heads, -1, first.shape[-1])  # [H, d, D]
    wide: Tensor = (query.transpose(0, 1) @ weight).transpose(0, 1)
    return wide


def _values(layer: LinearKeysLayer, mixed: Tensor) -> Tensor:
    """Compute each attention head's value `[N, H, d]` from its weighted mean of hidden states, `[N, H, D]`."""
    heads = layer.attention_heads
    weight = layer.value.weight.reshape(heads, -1, mixed.shape[-1])  # [H, d, D]
    value = (mixed.transpose(0, 1) @ weight.transpose(1, 2)).transpose(0, 1)
    return value + layer.value.bias.reshape(heads, -1)
