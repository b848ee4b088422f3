"""The pre-norm encoder of ModernBERT (Warner et al., 2024): rotary positions, gated feed-forwards, local attention.

Legend as in `layout.py`. Layers add their results to hidden states without normalising these. A norm is applied to the
input of attention and of the feed-forward, and once more after the last layer. The first layer has no norm before
attention, because embeddings are normalised. Every `global_every`-th layer attends to the whole pair, and the others
have local attention. The two kinds of layers have different rotary frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.network.bodies.merging import side_by_side
from cerberank_models.network.bodies.rotary import turned, turns_of
from cerberank_models.network.layout import Layout
from cerberank_models.transformer import PreNormConfig, TransformerConfig


class PreNormBody:
    """The encoder: embeddings without positions or token types, and layers whose keys depend on positions."""

    linear_keys = False
    shared_layers = False

    def __init__(self, config: TransformerConfig, layers: int, dropout: float) -> None:
        """Allocate the encoder; `dropout` applies in training only. Raises ValueError without `config.pre_norm`."""
        self._config = config
        self._dropout = dropout
        self._options = _options(config)
        self.embeddings: nn.Module = PreNormEmbeddings(config, self.output_norm(), dropout)
        self.layers = nn.ModuleList(self.head_layer(depth) for depth in range(layers))

    def embed(self, token_ids: Tensor, type_ids: Tensor, layout: Layout) -> Tensor:
        """The normalised token embeddings. There are no token types, and positions are applied to queries and keys."""
        hidden: Tensor = self.embeddings(token_ids)
        return hidden

    def run(self, hidden: Tensor, layout: Layout, start: int, stop: int) -> Tensor:
        """Run layers `[start, stop)` one after the other."""
        for layer in self.layers[start:stop]:
            hidden = layer(hidden, layout)
        return hidden

    def merge_projections(self) -> None:
        """Merge query, key and value of every layer into one product, and `gate` and `up` into another."""
        for layer in self.layers:
            if isinstance(layer, PreNormLayer):
                layer.merge_projections()

    def head_layer(self, depth: int) -> PreNormLayer:
        """A layer for this depth, which determines its window, its frequencies, and if it has an attention norm."""
        norm = self.output_norm() if depth else nn.Identity()
        return PreNormLayer(self._config, norm, self.output_norm(), depth=depth, dropout=self._dropout)

    def output_norm(self) -> nn.Module:
        """A norm like the one after the last layer."""
        epsilon, bias = self._config.layer_norm_epsilon, self._options.norm_bias
        return nn.LayerNorm(self._config.hidden_size, eps=epsilon, bias=bias)


class PreNormEmbeddings(nn.Module):
    """The token embeddings and their norm."""

    def __init__(self, config: TransformerConfig, norm: nn.Module, dropout: float) -> None:
        """Allocate the table; `dropout` applies in training only."""
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.norm = norm
        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids: Tensor) -> Tensor:
        """Compute hidden states `[.., D]` from token ids in any layout."""
        hidden: Tensor = self.dropout(self.norm(self.tokens(token_ids)))
        return hidden


class PreNormLayer(nn.Module):
    """Self-attention and a gated feed-forward, each after a norm."""

    inner_products: Mapping[str, tuple[str, ...]] = MappingProxyType({"down": ("gate", "up")})

    def __init__(
        self, config: TransformerConfig, attention_norm: nn.Module, feed_norm: nn.Module, *, depth: int, dropout: float
    ) -> None:
        """Allocate the layer at `depth`; `dropout` applies in training only."""
        super().__init__()
        options, width, inner = _options(config), config.hidden_size, config.intermediate_size
        self.attention_heads = config.attention_heads
        self.dropout = dropout
        self.window = options.window_of(depth)
        self.theta = options.theta_of(depth)
        # The order of these modules is that of the weights in a checkpoint.
        self.attention_norm = attention_norm
        self.feed_norm = feed_norm
        self.query = nn.Linear(width, width, bias=options.attention_bias)
        self.key = nn.Linear(width, width, bias=options.attention_bias)
        self.value = nn.Linear(width, width, bias=options.attention_bias)
        self.attention_output = nn.Linear(width, width, bias=options.attention_bias)
        self.gate = nn.Linear(width, inner, bias=options.feed_forward_bias)
        self.up = nn.Linear(width, inner, bias=options.feed_forward_bias)
        self.down = nn.Linear(inner, width, bias=options.feed_forward_bias)
        self.merged: nn.Linear | None = None
        """The projection to query, key and value in one product, after `merge_projections`."""
        self.merged_feed: nn.Linear | None = None
        """`gate` and `up` in one product, after `merge_projections`."""

    def merge_projections(self) -> None:
        """Replace five linear layers by `merged` and `merged_feed`. `forward_first` cannot be used afterwards."""
        self.merged = side_by_side(self.query, self.key, self.value)
        self.merged_feed = side_by_side(self.gate, self.up)
        del self.query, self.key, self.value, self.gate, self.up

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute all tokens, from `[.., D]` to `[.., D]`."""
        read = self.attention_norm(hidden)
        if self.merged is None:
            query, key, value = (self._split(part(read)) for part in (self.query, self.key, self.value))
        else:
            query, key, value = self.merged(read).unflatten(-1, (3, self.attention_heads, -1)).unbind(-3)
        turns = turns_of(layout.positions, query.shape[-1], self.theta)
        query, key = (turned(part, *turns) for part in (query, key))
        mixed = layout.attend(query, key, value, self._attention_dropout, window=self.window)
        return self._finish(hidden, mixed)

    def forward_first(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute the first tokens only, from `[.., D]` to `[N, D]`; keys and values are of all tokens."""
        read = self.attention_norm(hidden)
        query = self._split(self.query(layout.first(read)))  # the rotation at position 0 is the identity
        key = self._split(self.key(read))
        key = turned(key, *turns_of(layout.positions, key.shape[-1], self.theta))
        value = self._split(self.value(read))
        mixed = layout.attend_first(query, key, value, self._attention_dropout, window=self.window)
        return self._finish(layout.first(hidden), mixed)

    @property
    def _attention_dropout(self) -> float:
        return self.dropout if self.training else 0.0

    def _finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        hidden = residual + self._drop(self.attention_output(mixed.flatten(-2)))
        read = self.feed_norm(hidden)
        if self.merged_feed is None:
            gate, up = self.gate(read), self.up(read)
        else:
            gate, up = self.merged_feed(read).chunk(2, dim=-1)
        return hidden + self._drop(self.down(functional.gelu(gate) * up))

    def _split(self, projected: Tensor) -> Tensor:
        return projected.reshape(*projected.shape[:-1], self.attention_heads, -1)

    def _drop(self, tensor: Tensor) -> Tensor:
        return functional.dropout(tensor, self.dropout, self.training)


def _options(config: TransformerConfig) -> PreNormConfig:
    if config.pre_norm is None:
        raise ValueError(f"{config.family} has no pre_norm, which this body needs")
    return config.pre_norm
