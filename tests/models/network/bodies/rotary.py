"""An encoder of another kind, which production code does not know: rotary positions, norms first, gated feed-forward.

"RoFormer" (Su et al., 2021) rotates queries and keys by their positions; pre-norm layers add what they compute to
hidden states that are normalised only where they are read.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from tests.tiny import random_ranker
from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.importing.hugging_face import initialise
from cerberank_models.network.bodies.contract import Fuse
from cerberank_models.network.layout import Layout
from cerberank_models.network.ranker import Ranker
from cerberank_models.transformer import TransformerConfig


class RotaryBody:
    """Fulfils `contract.Body`."""

    linear_keys = False
    shared_layers = False

    def __init__(self, config: TransformerConfig, layers: int, dropout: float) -> None:
        self._config = config
        self.embeddings: nn.Module = nn.ModuleDict({"tokens": nn.Embedding(config.vocab_size, config.hidden_size)})
        self.layers = nn.ModuleList(RotaryLayer(config) for _ in range(layers))

    def embed(self, token_ids: Tensor, type_ids: Tensor, layout: Layout) -> Tensor:
        hidden: Tensor = self.embeddings.get_submodule("tokens")(token_ids)
        return hidden

    def run(self, hidden: Tensor, layout: Layout, start: int, stop: int) -> Tensor:
        for layer in self.layers[start:stop]:
            hidden = layer(hidden, layout)
        return hidden

    def merge_projections(self) -> None:
        """Rotations lie between the projections and attention: they stay apart."""

    def fuse(self, fuse: Fuse) -> None:
        """Nothing is fused."""

    def head_layer(self) -> nn.Module:
        return RotaryLayer(self._config)

    def output_norm(self) -> nn.Module:
        return nn.LayerNorm(self._config.hidden_size)


class RotaryLayer(nn.Module):
    """Fulfils `contract.Layer`; its feed-forward has no biases."""

    inner_products: Mapping[str, tuple[str, ...]] = {"down": ("gate", "up")}

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.heads = config.attention_heads
        self.norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        read = self.norm(hidden)
        turns = self._turns(layout, hidden)
        query, key = (_rotated(self._split(linear(read)), *turns) for linear in (self.query, self.key))
        return self._finish(hidden, layout.attend(query, key, self._split(self.value(read)), 0.0))

    def forward_first(self, hidden: Tensor, layout: Layout) -> Tensor:
        read = self.norm(hidden)
        query = self._split(self.query(layout.first(read)))  # position 0 is not turned
        key = _rotated(self._split(self.key(read)), *self._turns(layout, hidden))
        mixed = layout.attend_first(query, key, self._split(self.value(read)), 0.0)
        return self._finish(layout.first(hidden), mixed)

    def _finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        hidden = residual + self.out(mixed.flatten(-2))
        fed = self.feed_norm(hidden)
        return hidden + self.down(functional.gelu(self.gate(fed)) * self.up(fed))

    def _split(self, projected: Tensor) -> Tensor:
        return projected.reshape(*projected.shape[:-1], self.heads, -1)

    def _turns(self, layout: Layout, hidden: Tensor) -> tuple[Tensor, Tensor]:
        size = hidden.shape[-1] // self.heads
        frequency = 10_000.0 ** (-torch.arange(0, size, 2, device=hidden.device) / size)
        angle = layout.positions[..., None, None] * frequency  # [.., 1, d / 2]
        return angle.cos().to(hidden.dtype), angle.sin().to(hidden.dtype)


def _rotated(split: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = split.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def rotary_ranker(*, seed: int = 0) -> Ranker:
    """As `random_ranker`, with two exits, three heads and this body instead of BERT's."""
    config = copy.deepcopy(random_ranker().config)
    torch.manual_seed(seed)
    ranker = Ranker(config, bodies={"bert": RotaryBody})
    initialise(ranker, seed=seed, deviation=0.3)
    return ranker.eval()
