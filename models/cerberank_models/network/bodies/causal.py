"""The decoder of Qwen2 and Qwen3: RMSNorm, rotary positions, grouped keys and values, SwiGLU, causal attention.

Legend as in `layout.py`. A token's hidden states depend only on the tokens before it, so that pairs with the same
prefix have the same hidden states there (`network/prefixes.py`).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.network.bodies.gated import GatedBody, GatedLayer, TokenEmbeddings
from cerberank_models.network.bodies.rotary import turned, turns_of
from cerberank_models.network.layout import Layout
from cerberank_models.transformer import DecoderConfig, TransformerConfig


class CausalBody(GatedBody):
    """The decoder."""

    def __init__(self, config: TransformerConfig, layers: int, dropout: float) -> None:
        """Allocate the decoder; `dropout` applies in training only. Raises ValueError without `config.decoder`."""
        self._config = config
        self._dropout = dropout
        super().__init__(TokenEmbeddings(config, nn.Identity(), 0.0), map(self.head_layer, range(layers)))

    def head_layer(self, depth: int) -> CausalLayer:
        """A layer like those of the body, which are the same at every depth."""
        return CausalLayer(self._config, self._dropout)

    def output_norm(self) -> nn.Module:
        """A norm like the one after the last layer."""
        return nn.RMSNorm(self._config.hidden_size, eps=self._config.layer_norm_epsilon)


class CausalLayer(GatedLayer):
    """Causal self-attention and a gated feed-forward, each after a norm."""

    def __init__(self, config: TransformerConfig, dropout: float) -> None:
        """Allocate the layer; `dropout` applies in training only. Raises ValueError without `config.decoder`."""
        super().__init__(functional.silu, dropout)
        options, width, inner = _options(config), config.hidden_size, config.intermediate_size
        self.theta = options.theta
        self.size = options.head_size
        self.widths = tuple(
            heads * options.head_size
            for heads in (config.attention_heads, options.key_value_heads, options.key_value_heads)
        )
        """The widths of the queries, keys and values of all heads together."""
        # The order of these modules is that of the weights in a checkpoint.
        self.attention_norm = nn.RMSNorm(width, eps=config.layer_norm_epsilon)
        self.feed_norm = nn.RMSNorm(width, eps=config.layer_norm_epsilon)
        self.query = nn.Linear(width, self.widths[0], bias=options.attention_bias)
        self.key = nn.Linear(width, self.widths[1], bias=options.attention_bias)
        self.value = nn.Linear(width, self.widths[2], bias=options.attention_bias)
        self.query_norm = _head_norm(config, options)
        self.key_norm = _head_norm(config, options)
        self.attention_output = nn.Linear(self.widths[0], width, bias=options.output_bias)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute all tokens, from `[.., D]` to `[.., D]`."""
        read = self.attention_norm(hidden)
        if self.merged is None:
            parts = [part(read) for part in (self.query, self.key, self.value)]
        else:
            parts = list(self.merged(read).split(self.widths, dim=-1))
        query, key, value = (part.unflatten(-1, (-1, self.size)) for part in parts)
        turns = turns_of(layout.positions, self.size, self.theta)
        query, key = turned(self.query_norm(query), *turns), turned(self.key_norm(key), *turns)
        mixed = layout.attend(query, key, value, self._attention_dropout, causal=True)
        return self._finish(hidden, mixed)

    def forward_first(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Raise ValueError, because a decoder's first token does not attend to the rest of its pair."""
        raise ValueError("the first token of a decoder has seen nothing of its pair: its last token is read")


def _head_norm(config: TransformerConfig, options: DecoderConfig) -> nn.Module:
    """The norm of the queries or keys of each attention head."""
    return nn.RMSNorm(options.head_size, eps=config.layer_norm_epsilon) if options.query_key_norm else nn.Identity()


def _options(config: TransformerConfig) -> DecoderConfig:
    if config.decoder is None:
        raise ValueError(f"{config.family} has no decoder, which this body needs")
    return config.decoder
