"""The decoder of Qwen2 and Qwen3: RMSNorm, rotary positions, grouped keys and values, SwiGLU, causal attention.

Legend as in `layout.py`. A token's hidden states depend only on the tokens before it, so that pairs with the same
prefix have the same hidden states there (`network/prefixes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.network.bodies.merging import side_by_side
from cerberank_models.network.bodies.rotary import turned, turns_of
from cerberank_models.network.layout import Layout
from cerberank_models.transformer import DecoderConfig, TransformerConfig


class CausalBody:
    """The decoder: token embeddings, and layers whose keys depend on positions."""

    linear_keys = False
    shared_layers = False

    def __init__(self, config: TransformerConfig, layers: int, dropout: float) -> None:
        """Allocate the decoder; `dropout` applies in training only. Raises ValueError without `config.decoder`."""
        self._config = config
        self._dropout = dropout
        self.embeddings: nn.Module = CausalEmbeddings(config)
        self.layers = nn.ModuleList(self.head_layer(depth) for depth in range(layers))

    def embed(self, token_ids: Tensor, type_ids: Tensor, layout: Layout) -> Tensor:
        """The token embeddings. There are no token types, and positions are applied to queries and keys."""
        hidden: Tensor = self.embeddings(token_ids)
        return hidden

    def run(self, hidden: Tensor, layout: Layout, start: int, stop: int) -> Tensor:
        """Run layers `[start, stop)` one after the other."""
        for layer in self.layers[start:stop]:
            hidden = layer(hidden, layout)
        return hidden

    def merge_projections(self) -> None:
        """Merge `gate` and `up` of every layer into one product, and query, key and value into another."""
        for layer in self.layers:
            if isinstance(layer, CausalLayer):
                layer.merge_projections()

    def head_layer(self, depth: int) -> CausalLayer:
        """A layer like those of the body, which are the same at every depth."""
        return CausalLayer(self._config, self._dropout)

    def output_norm(self) -> nn.Module:
        """A norm like the one after the last layer."""
        return nn.RMSNorm(self._config.hidden_size, eps=self._config.layer_norm_epsilon)


class CausalEmbeddings(nn.Module):
    """The token embeddings."""

    def __init__(self, config: TransformerConfig) -> None:
        """Allocate the table."""
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)

    def forward(self, token_ids: Tensor) -> Tensor:
        """Look up the hidden states `[.., D]` of token ids in any layout."""
        hidden: Tensor = self.tokens(token_ids)
        return hidden


class CausalLayer(nn.Module):
    """Causal self-attention and a gated feed-forward, each after a norm."""

    inner_products: Mapping[str, tuple[str, ...]] = MappingProxyType({"down": ("gate", "up")})

    def __init__(self, config: TransformerConfig, dropout: float) -> None:
        """Allocate the layer; `dropout` applies in training only. Raises ValueError without `config.decoder`."""
        super().__init__()
        options, width, inner = _options(config), config.hidden_size, config.intermediate_size
        self.dropout = dropout
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
        self.merged: nn.Linear | None = None
        """The projection to query, key and value in one product, after `merge_projections`."""
        self.merged_feed: nn.Linear | None = None
        """`gate` and `up` in one product, after `merge_projections`."""

    def merge_projections(self) -> None:
        """Replace five linear layers by `merged` and `merged_feed`."""
        self.merged = side_by_side(self.query, self.key, self.value)
        self.merged_feed = side_by_side(self.gate, self.up)
        del self.query, self.key, self.value, self.gate, self.up

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
        mixed = layout.attend(query, key, value, self.dropout if self.training else 0.0, causal=True)
        return self._finish(hidden, mixed)

    def forward_first(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Raise ValueError, because a decoder's first token does not attend to the rest of its pair."""
        raise ValueError("the first token of a decoder has seen nothing of its pair: its last token is read")

    def _finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        hidden = residual + self._drop(self.attention_output(mixed.flatten(-2)))
        read = self.feed_norm(hidden)
        if self.merged_feed is None:
            gate, up = self.gate(read), self.up(read)
        else:
            gate, up = self.merged_feed(read).chunk(2, dim=-1)
        return hidden + self._drop(self.down(functional.silu(gate) * up))

    def _drop(self, tensor: Tensor) -> Tensor:
        return functional.dropout(tensor, self.dropout, self.training)


def _head_norm(config: TransformerConfig, options: DecoderConfig) -> nn.Module:
    """The norm of the queries or keys of each attention head."""
    return nn.RMSNorm(options.head_size, eps=config.layer_norm_epsilon) if options.query_key_norm else nn.Identity()


def _options(config: TransformerConfig) -> DecoderConfig:
    if config.decoder is None:
        raise ValueError(f"{config.family} has no decoder, which this body needs")
    return config.decoder
