"""The parts that the bodies of ModernBERT and of decoders share: norms before rotary attention and gated feed-forwards.

Legend as in `layout.py`. Layers add their results to hidden states without normalising these; positions are applied to
queries and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.network.bodies.merging import side_by_side
from cerberank_models.network.layout import Layout
from cerberank_models.transformer import TransformerConfig


class TokenEmbeddings(nn.Module):
    """The token embeddings and their norm, without positions or token types."""

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


class GatedLayer(nn.Module):
    """A layer whose subclass makes these linear layers and norms, and computes the attention."""

    inner_products: Mapping[str, tuple[str, ...]] = MappingProxyType({"down": ("gate", "up")})
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    attention_output: nn.Linear
    feed_norm: nn.Module
    gate: nn.Linear
    up: nn.Linear
    down: nn.Linear

    def __init__(self, activation: Callable[[Tensor], Tensor], dropout: float) -> None:
        """`activation` is that of the gate; `dropout` applies in training only."""
        super().__init__()
        self.activation = activation
        self.dropout = dropout
        self.merged: nn.Linear | None = None
        """The projection to query, key and value in one product, after `merge_projections`."""
        self.merged_feed: nn.Linear | None = None
        """`gate` and `up` in one product, after `merge_projections`."""

    def merge_projections(self) -> None:
        """Replace five linear layers by `merged` and `merged_feed`. `forward_first` cannot be used afterwards."""
        self.merged = side_by_side(self.query, self.key, self.value)
        self.merged_feed = side_by_side(self.gate, self.up)
        del self.query, self.key, self.value, self.gate, self.up

    @property
    def _attention_dropout(self) -> float:
        return self.dropout if self.training else 0.0

    def _finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """Compute the part of a layer after attention, `[.., D]`, from its input and the result `[.., H, d]`."""
        hidden = residual + self._drop(self.attention_output(mixed.flatten(-2)))
        read = self.feed_norm(hidden)
        if self.merged_feed is None:
            gate, up = self.gate(read), self.up(read)
        else:
            gate, up = self.merged_feed(read).chunk(2, dim=-1)
        return hidden + self._drop(self.down(self.activation(gate) * up))

    def _drop(self, tensor: Tensor) -> Tensor:
        return functional.dropout(tensor, self.dropout, self.training)


class GatedBody:
    """Token embeddings, and layers whose keys depend on positions."""

    linear_keys = False
    shared_layers = False

    def __init__(self, embeddings: nn.Module, layers: Iterable[GatedLayer]) -> None:
        """Hold the modules; the layers are made after the embeddings."""
        self.embeddings = embeddings
        self.layers = nn.ModuleList(layers)

    def embed(self, token_ids: Tensor, type_ids: Tensor, layout: Layout) -> Tensor:
        """The token embeddings; there are no token types."""
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
            if isinstance(layer, GatedLayer):
                layer.merge_projections()
