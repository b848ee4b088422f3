"""The post-norm encoder of BERT and related families: absolute positions, full attention, a norm after residuals, GELU.

Legend as in `layout.py`. A layer can compute the first token only, because heads read only that. ALBERT has one layer
that runs at every depth, and DistilBERT has no token types. ELECTRA, RoBERTa and XLM-RoBERTa have BERT's layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.network.bodies.merging import side_by_side
from cerberank_models.network.layout import Layout
from cerberank_models.transformer import TransformerConfig

"""Computes the LayerNorm of a sum, from two summands `[.., D]` and the norm's weight, bias and epsilon."""


class PostNormBody:
    """The encoder: embeddings, and layers whose keys are linear in the hidden states."""

    linear_keys = True

    def __init__(self, config: TransformerConfig, layers: int, dropout: float) -> None:
        """Allocate the encoder; `dropout` applies in training only."""
        self._config = config
        self._dropout = dropout
        self.shared_layers = config.shared_layers
        self.embeddings: nn.Module = PostNormEmbeddings(config, dropout)
        count = min(layers, 1) if config.shared_layers else layers
        self.layers = nn.ModuleList(PostNormLayer(config, dropout) for _ in range(count))

    def embed(self, token_ids: Tensor, type_ids: Tensor, layout: Layout) -> Tensor:
        """The sum of token, segment and position embeddings."""
        hidden: Tensor = self.embeddings(token_ids, type_ids, layout.positions)
        return hidden

    def run(self, hidden: Tensor, layout: Layout, start: int, stop: int) -> Tensor:
        """Run layers `[start, stop)` one after the other, or the shared layer as many times."""
        for depth in range(start, stop):
            hidden = self.layers[0 if self.shared_layers else depth](hidden, layout)
        return hidden

    def merge_projections(self) -> None:
        """Merge query, key and value of every layer into one product."""
        for layer in self._layers():
            layer.merge_projections()

    def _layers(self) -> list[PostNormLayer]:
        return [layer for layer in self.layers if isinstance(layer, PostNormLayer)]

    def head_layer(self, depth: int) -> PostNormLayer:
        """A layer like those of the body, which are the same at every depth."""
        return PostNormLayer(self._config, self._dropout)

    def output_norm(self) -> nn.Module:
        """Return the identity, because every layer ends in a norm."""
        return nn.Identity()


class PostNormEmbeddings(nn.Module):
    """The normalised sum of token, position and segment embeddings, which ELECTRA-small and ALBERT project up."""

    def __init__(self, config: TransformerConfig, dropout: float) -> None:
        """Allocate the tables; `dropout` applies in training only."""
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.positions = nn.Embedding(config.max_positions, config.embedding_size)
        self.types = nn.Embedding(config.type_vocab_size, config.embedding_size) if config.token_types else None
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(dropout)
        self.position_offset = config.position_offset
        self.project = (
            nn.Linear(config.embedding_size, config.hidden_size)
            if config.embedding_size != config.hidden_size
            else nn.Identity()
        )

    def forward(self, token_ids: Tensor, type_ids: Tensor, positions: Tensor) -> Tensor:
        """Compute hidden states `[.., D]` from ids in any layout; `positions` are broadcast."""
        summed = self.tokens(token_ids)
        if self.types is not None:
            summed = summed + self.types(type_ids)
        summed = summed + self.positions(positions + self.position_offset)
        hidden: Tensor = self.project(self.dropout(self.norm(summed)))
        return hidden


class PostNormLayer(nn.Module):
    """Self-attention and feed-forward, each followed by a residual and a LayerNorm."""

    inner_products: Mapping[str, tuple[str, ...]] = MappingProxyType({"down": ("up",)})

    def __init__(self, config: TransformerConfig, dropout: float) -> None:
        """Allocate the layer; `dropout` applies in training only."""
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.attention_heads = config.attention_heads
        self.dropout = dropout
        self.gelu = "tanh" if config.family == "albert" else "none"
        """The approximation of GELU: ALBERT was trained with the tanh form, other families with the exact function."""
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.attention_output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_epsilon)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.output_norm = nn.LayerNorm(width, eps=config.layer_norm_epsilon)
        self.merged: nn.Linear | None = None
        """The projection to query, key and value in one product, after `merge_projections`."""

    def merge_projections(self) -> None:
        """Replace the layers `query`, `key` and `value` by `merged`. `forward_first` cannot be used afterwards."""
        self.merged = side_by_side(self.query, self.key, self.value)
        del self.query, self.key, self.value

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute all tokens, from `[.., D]` to `[.., D]`."""
        if self.merged is None:
            query, key, value = (self._split(part(hidden)) for part in (self.query, self.key, self.value))
        else:
            query, key, value = self.merged(hidden).unflatten(-1, (3, self.attention_heads, -1)).unbind(-3)
        return self.finish(hidden, layout.attend(query, key, value, self._attention_dropout))

    def forward_first(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute the first tokens only, from `[.., D]` to `[N, D]`; keys and values are of all tokens."""
        first = layout.first(hidden)
        mixed = layout.attend_first(
            self._split(self.query(first)),
            self._split(self.key(hidden)),
            self._split(self.value(hidden)),
            self._attention_dropout,
        )
        return self.finish(first, mixed)

    @property
    def _attention_dropout(self) -> float:
        return self.dropout if self.training else 0.0

    def _split(self, projected: Tensor) -> Tensor:
        return projected.reshape(*projected.shape[:-1], self.attention_heads, -1)

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """Compute the part of a layer after attention, `[.., D]`.

        `residual` is the layer's input `[.., D]`, and `mixed` the result of attention `[.., H, d]`.
        """
        attended = self._drop(self.attention_output(mixed.flatten(-2)))
        hidden = self.attention_norm(residual + attended)
        fed = self._drop(self.down(functional.gelu(self.up(hidden), approximate=self.gelu)))
        out: Tensor = self.output_norm(hidden + fed)
        return out

    def _drop(self, tensor: Tensor) -> Tensor:
        return functional.dropout(tensor, self.dropout, self.training)
