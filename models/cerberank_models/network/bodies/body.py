"""The protocols of an encoder's parts that a ranker needs: embeddings, layers, and layers for heads.

Legend as in `layout.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from cerberank_models.network.layout import Layout
from cerberank_models.transformer import TransformerConfig


@runtime_checkable
class Layer(Protocol):
    """A module that is one layer of a body or of a head."""

    inner_products: Mapping[str, tuple[str, ...]]
    """For each linear layer that reads a feed-forward's inner channels: the names of the layers that compute them.

    A gated feed-forward has two layers that compute the channels. The channels of all these layers may be reordered
    together, and int8 keeps a few channels of the reading layer in fp32."""

    def __call__(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute all tokens, from `[.., D]` to `[.., D]`."""

    def forward_first(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute the first tokens only, from `[.., D]` to `[N, D]`, with the same result as `__call__` for them."""


class LinearKeysLayer(Layer, Protocol):
    """A layer of a body with `linear_keys`, whose attention `AbsorbedHeads` computes itself."""

    attention_heads: int
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """Compute the part of a layer after attention, `[.., D]`.

        `residual` is the layer's input `[.., D]`, and `mixed` the result of attention `[.., H, d]`.
        """


class Body(Protocol):
    """An encoder or decoder of some depth. It is not a module itself.

    The ranker registers its modules under the names `embeddings` and `body.<i>`, which the checkpoint format uses.
    """

    embeddings: nn.Module
    """A module whose `tokens` is an `nn.Embedding`, which int8 stores in bytes, and training may freeze."""
    layers: nn.ModuleList
    """The layers, which implement `Layer`."""
    shared_layers: bool
    """True if one layer runs at every depth. `layers` then holds only that layer, or none for a body of depth 0."""
    linear_keys: bool
    """True if keys and values are linear in a layer's input, with the same map at every position.

    With rotary positions or a norm before attention they are not, and `AbsorbedHeads` cannot be used.
    """

    def embed(self, token_ids: Tensor, type_ids: Tensor, layout: Layout) -> Tensor:
        """Compute hidden states `[.., D]` from ids in any layout."""

    def run(self, hidden: Tensor, layout: Layout, start: int, stop: int) -> Tensor:
        """Run layers `[start, stop)`, from `[.., D]` to `[.., D]`."""

    def merge_projections(self) -> None:
        """Merge linear layers with the same input into one product. For inference only: names of weights may change."""

    def head_layer(self, depth: int) -> nn.Module:
        """A new `Layer` for a head. `depth` counts from 0 and includes the body's layers below it."""

    def output_norm(self) -> nn.Module:
        """A new norm for the input of an exit or a head's classifier; `nn.Identity` if layers end in a norm."""


class BodyType(Protocol):
    """Makes bodies of one kind."""

    def __call__(self, config: TransformerConfig, layers: int, dropout: float) -> Body:
        """Allocate embeddings and `layers` layers; `dropout` applies in training only."""
