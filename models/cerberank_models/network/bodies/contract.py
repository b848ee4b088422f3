"""The parts of an encoder that a ranker needs: embeddings, layers, and the layers of heads on top.

Legend as in `layout.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from cerberank_models.network.layout import Layout
from cerberank_models.transformer import TransformerConfig

FunctionT = TypeVar("FunctionT", bound=Callable[..., Tensor])


class Fuse(Protocol):
    """Makes a function of tensors into one that computes the same in fewer passes over memory, as `torch.compile`."""

    def __call__(self, function: FunctionT, /) -> FunctionT:
        """The function to call instead."""


@runtime_checkable
class Layer(Protocol):
    """A module, one layer of a body or of a head."""

    inner_products: Mapping[str, tuple[str, ...]]
    """Names of the linear layers that read a feed-forward's inner channels, each with the names of those whose outputs
    are these channels: all of them may be reordered together, and int8 keeps a few channels of the reading ones in
    fp32. A gated feed-forward has two that make one channel."""

    def __call__(self, hidden: Tensor, layout: Layout) -> Tensor:
        """All tokens: `[.., D]` to `[.., D]`."""

    def forward_first(self, hidden: Tensor, layout: Layout) -> Tensor:
        """First tokens only: `[.., D]` to `[N, D]`, what the whole layer gives there."""


class LinearKeysLayer(Layer, Protocol):
    """A layer of a body with `linear_keys`, whose attention `AbsorbedHeads` takes apart."""

    attention_heads: int
    query: nn.Linear
    key: nn.Linear
    value: nn.Linear

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """The part of a layer after attention: the layer's input `[.., D]` and the mix of its heads `[.., H, d]` to
        `[.., D]`.
        """


class Body(Protocol):
    """An encoder of some depth. It is not a module itself.

    The checkpoint format names its modules `embeddings` and `body.<i>`, beside `heads` and `exits`: the ranker
    registers them under these names.
    """

    embeddings: nn.Module
    """Its `tokens` is an `nn.Embedding`, the token table: int8 stores it in bytes, training may keep it as it is."""
    layers: nn.ModuleList
    """Each fulfils `Layer`."""
    shared_layers: bool
    """True if one layer serves at every depth: `layers` then holds that one, or none for a body of depth 0."""
    linear_keys: bool
    """True if keys and values are linear in the hidden states that a layer is given, at every position alike.

    Rotary positions or a norm before attention make them depend on more, and heads then run in their plain form.
    """

    def embed(self, token_ids: Tensor, type_ids: Tensor, layout: Layout) -> Tensor:
        """Ids as the layout has them to hidden states `[.., D]`."""

    def run(self, hidden: Tensor, layout: Layout, start: int, stop: int) -> Tensor:
        """Layers `[start, stop)`: `[.., D]` to `[.., D]`."""

    def merge_projections(self) -> None:
        """For inference alone: compute what several linear layers make of one input by one product, where there are
        such; the names of weights may change.
        """

    def fuse(self, fuse: Fuse) -> None:
        """For inference alone: replace functions that only read and write memory, such as a sum and its norm."""

    def head_layer(self, depth: int) -> nn.Module:
        """A fresh layer for a head; it fulfils `Layer`. `depth` counts from 0, the body's layers below it included."""

    def output_norm(self) -> nn.Module:
        """A fresh norm of what an exit or a head's classifier reads; `nn.Identity` where layers end in a norm."""


class BodyType(Protocol):
    """Makes a family's bodies."""

    def __call__(self, config: TransformerConfig, layers: int, dropout: float) -> Body:
        """Allocate embeddings and `layers` layers; `dropout` acts in training only."""
