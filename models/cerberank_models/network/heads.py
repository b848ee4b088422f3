"""The heads of CERBERUS: h layers and a classifier each, on top of a shared body (section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.config import Activation, ArchitectureConfig, DenseModule, NormModule
from cerberank_models.network.bodies.contract import Body, Layer
from cerberank_models.network.layout import Layout
from cerberank_models.network.precision import LastLinear

ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "none": nn.Identity(),
        "gelu": functional.gelu,
        "relu": functional.relu,
        "sigmoid": torch.sigmoid,
        "silu": functional.silu,
        "tanh": torch.tanh,
    }
)


class Classifier(nn.Module):
    """First token, or the mean of all -> Linear -> activation -> norm, in ModernBERT -> Linear.

    BERT's pooler and classifier, and the classification heads of all other families, are this shape.
    """

    def __init__(
        self, width: int, architecture: ArchitectureConfig, dropout: float, norm: nn.Module, *, before: float
    ) -> None:
        """`width` D; one logit or two by `architecture.classifier_logits`; `norm` is the body's output norm.

        `dropout` stands before the last layer, and `before` before the first one.
        """
        super().__init__()
        self.dense = nn.Linear(width, width, bias=architecture.classifier_bias)
        self.norm = norm
        self.output = LastLinear(width, architecture.classifier_logits)
        self.activation = ACTIVATIONS[architecture.classifier_activation]
        self.dropout, self.before = nn.Dropout(dropout), nn.Dropout(before)

    def forward(self, pooled: Tensor) -> Tensor:
        """`[.., D]` to one float32 logit a pair `[..]`: `z1 - z0` of two classes."""
        inner = self.norm(self.activation(self.dense(self.before(pooled))))
        logits: Tensor = self.output(self.dropout(inner)).float()
        return one_logit(logits)


class ModularClassifier(nn.Module):
    """The modules of `ArchitectureConfig.classifier_modules`: linear maps and norms, the last of which gives the
    logits.
    """

    def __init__(self, width: int, architecture: ArchitectureConfig, dropout: float) -> None:
        """`width` D of what it reads. Raises ValueError without modules."""
        super().__init__()
        *inner, last = architecture.classifier_modules
        if not isinstance(last, DenseModule):
            raise ValueError("the last module of a classifier must be dense")
        self.steps = nn.ModuleList()
        for module in inner:
            self.steps.append(_Dense(width, module) if isinstance(module, DenseModule) else _norm(width, module))
            width = module.width if isinstance(module, DenseModule) else width
        self.output = LastLinear(width, last.width, bias=last.bias)
        self.activation = ACTIVATIONS[last.activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, pooled: Tensor) -> Tensor:
        """`[.., D]` to one float32 logit a pair `[..]`: `z1 - z0` of two classes."""
        return one_logit(self.logits(pooled))

    def logits(self, pooled: Tensor) -> Tensor:
        """`[.., D]` to float32 logits `[.., 1]` or `[.., 2]`."""
        for step in self.steps:
            pooled = step(pooled)
        logits: Tensor = self.output(self.dropout(pooled)).float()
        return self.activation(logits)


class _Dense(nn.Module):
    def __init__(self, width: int, module: DenseModule) -> None:
        super().__init__()
        self.linear = nn.Linear(width, module.width, bias=module.bias)
        self.activation = ACTIVATIONS[module.activation]

    def forward(self, pooled: Tensor) -> Tensor:
        """`[.., D]` to `[.., width]`."""
        return self.activation(self.linear(pooled))


class _UnitLength(nn.Module):
    def forward(self, pooled: Tensor) -> Tensor:
        """Each vector divided by its length."""
        return functional.normalize(pooled, dim=-1)


def _norm(width: int, module: NormModule) -> nn.Module:
    return nn.LayerNorm(width) if module.kind == "layer_norm" else _UnitLength()


def one_logit(logits: Tensor) -> Tensor:
    """The logit of a pair `[..]` of its logits `[.., 1]`, or the difference `z1 - z0` of `[.., 2]`."""
    return logits[..., 0] if logits.shape[-1] == 1 else logits[..., 1] - logits[..., 0]


class Head(nn.Module):
    """h layers and a classifier; if that reads the first token, the last layer computes nothing else."""

    def __init__(
        self, body: Body, width: int, architecture: ArchitectureConfig, dropout: float, *, before: float
    ) -> None:
        """Allocate one head of layers like the `body`'s.

        `width` D of the hidden states; h may be 0, then the classifier reads the body's first token. Where the body's
        depths share one layer, the head has one layer of its own, which runs h times. `dropout` stands before the
        classifier's last layer, and `before` before its first one.
        """
        super().__init__()
        self.depth = architecture.head_layers
        count = min(self.depth, 1) if body.shared_layers else self.depth
        self.layers = nn.ModuleList(body.head_layer(architecture.body_layers + index) for index in range(count))
        self.norm = body.output_norm()
        self.pooling = architecture.classifier_pooling
        self.classifier: nn.Module = (
            ModularClassifier(width, architecture, dropout)
            if architecture.classifier_modules
            else Classifier(width, architecture, dropout, body.output_norm(), before=before)
        )

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Body output `[.., D]` to logits `[N]`."""
        below = self.below_last(hidden, layout)
        if self.pooling != "first":
            last = self.last_layer(below, layout) if len(self.layers) else below
            if self.pooling == "last":
                return self.classify(layout.last(last))
            means: Tensor = self.classifier(layout.mean(self.norm(last)))
            return means
        first = self.last_layer.forward_first(below, layout) if len(self.layers) else layout.first(below)
        return self.classify(first)

    def classify(self, first: Tensor) -> Tensor:
        """Logits `[..]` from the last layer's output for the first tokens, `[.., D]`."""
        logits: Tensor = self.classifier(self.norm(first))
        return logits

    def below_last(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Body output `[.., D]` to the input of the last layer, the same tensor when there is no other."""
        for depth in range(self.depth - 1):
            hidden = self.layers[depth % len(self.layers)](hidden, layout)
        return hidden

    @property
    def last_layer(self) -> Layer:
        """The layer that may compute the first token alone; h must not be 0."""
        return cast(Layer, self.layers[-1])


class Heads(nn.ModuleList):
    """The k heads, one after the other."""

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Body output `[.., D]` to logits `[N, k]`."""
        return torch.stack([head(hidden, layout) for head in self], dim=1)
