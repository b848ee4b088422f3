"""The pre-norm encoder of ModernBERT (Warner et al., 2024): rotary positions, gated feed-forwards, local attention.

Legend as in `layout.py`. Layers add their results to hidden states without normalising these. A norm is applied to the
input of attention and of the feed-forward, and once more after the last layer. The first layer has no norm before
attention, because embeddings are normalised. Every `global_every`-th layer attends to the whole pair, and the others
have local attention. The two kinds of layers have different rotary frequencies.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.network.bodies.gated import GatedBody, GatedLayer, TokenEmbeddings
from cerberank_models.network.bodies.rotary import turned, turns_of
from cerberank_models.network.layout import Layout
from cerberank_models.transformer import PreNormConfig, TransformerConfig


class PreNormBody(GatedBody):
    """The encoder."""

    def __init__(self, config: TransformerConfig, layers: int, dropout: float) -> None:
        """Allocate the encoder; `dropout` applies in training only. Raises ValueError without `config.pre_norm`."""
        self._config = config
        self._dropout = dropout
        self._options = _options(config)
        super().__init__(TokenEmbeddings(config, self.output_norm(), dropout), map(self.head_layer, range(layers)))

    def head_layer(self, depth: int) -> PreNormLayer:
        """A layer for this depth, which determines its window, its frequencies, and if it has an attention norm."""
        norm = self.output_norm() if depth else nn.Identity()
        return PreNormLayer(self._config, norm, self.output_norm(), depth=depth, dropout=self._dropout)

    def output_norm(self) -> nn.Module:
        """A norm like the one after the last layer."""
        epsilon, bias = self._config.layer_norm_epsilon, self._options.norm_bias
        return nn.LayerNorm(self._config.hidden_size, eps=epsilon, bias=bias)


class PreNormLayer(GatedLayer):
    """Self-attention and a gated feed-forward, each after a norm."""

    def __init__(
        self, config: TransformerConfig, attention_norm: nn.Module, feed_norm: nn.Module, *, depth: int, dropout: float
    ) -> None:
        """Allocate the layer at `depth`; `dropout` applies in training only."""
        super().__init__(functional.gelu, dropout)
        options, width, inner = _options(config), config.hidden_size, config.intermediate_size
        self.attention_heads = config.attention_heads
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

    def _split(self, projected: Tensor) -> Tensor:
        return projected.reshape(*projected.shape[:-1], self.attention_heads, -1)


def _options(config: TransformerConfig) -> PreNormConfig:
    if config.pre_norm is None:
        raise ValueError(f"{config.family} has no pre_norm, which this body needs")
    return config.pre_norm
