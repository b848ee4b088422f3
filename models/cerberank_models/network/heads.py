"""The heads of CERBERUS: h layers and a classifier each, on top of a shared body (section 3)."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.config import ArchitectureConfig
from cerberank_models.network.bodies.contract import Body, Layer
from cerberank_models.network.layout import Layout
from cerberank_models.network.precision import LastLinear


class Classifier(nn.Module):
    """First token -> Linear -> activation -> Linear.

    BERT's pooler and classifier, RoBERTa's and ELECTRA's classification heads are all this shape.
    """

    def __init__(self, width: int, architecture: ArchitectureConfig, dropout: float) -> None:
        """`width` D; one logit or two by `architecture.classifier_logits`."""
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.output = LastLinear(width, architecture.classifier_logits)
        self.activation = torch.tanh if architecture.classifier_activation == "tanh" else functional.gelu
        self.dropout = nn.Dropout(dropout)

    def forward(self, first: Tensor) -> Tensor:
        """`[.., D]` to one float32 logit a pair `[..]`: `z1 - z0` of two classes."""
        logits: Tensor = self.output(self.dropout(self.activation(self.dense(self.dropout(first))))).float()
        return logits[..., 0] if logits.shape[-1] == 1 else logits[..., 1] - logits[..., 0]


class Head(nn.Module):
    """h layers, the last of which computes the first token alone, and a classifier."""

    def __init__(self, body: Body, width: int, architecture: ArchitectureConfig, dropout: float) -> None:
        """Allocate one head of layers like the `body`'s.

        `width` D of the hidden states; h may be 0, then the classifier reads the body's first token. Where the body's
        depths share one layer, the head has one layer of its own, which runs h times.
        """
        super().__init__()
        self.depth = architecture.head_layers
        count = min(self.depth, 1) if body.shared_layers else self.depth
        self.layers = nn.ModuleList(body.head_layer() for _ in range(count))
        self.norm = body.output_norm()
        self.classifier = Classifier(width, architecture, dropout)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Body output `[.., D]` to logits `[N]`."""
        below = self.below_last(hidden, layout)
        first = self.last_layer.forward_first(below, layout) if len(self.layers) else layout.first(below)
        return self.classify(first)

    def classify(self, first: Tensor) -> Tensor:
        """What the last layer gives for the first tokens, `[.., D]`, to logits `[..]`."""
        logits: Tensor = self.classifier(self.norm(first))
        return logits

    def below_last(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Body output `[.., D]` to the input of the last layer, the same tensor when there is no other."""
        for depth in range(self.depth - 1):
            hidden = self.layers[depth % len(self.layers)](hidden, layout)
        return hidden

    @property
    def last_layer(self) -> Layer:
        """The layer that computes the first token alone; h must not be 0."""
        return cast(Layer, self.layers[-1])


class Heads(nn.ModuleList):
    """The k heads, one after the other."""

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Body output `[.., D]` to logits `[N, k]`."""
        return torch.stack([head(hidden, layout) for head in self], dim=1)
