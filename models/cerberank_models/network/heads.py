"""The heads of CERBERUS (section 3), each of which has h layers and a classifier on top of the shared body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.config import Activation, ArchitectureConfig, DenseModule, NormModule
from cerberank_models.network.bodies.body import Body, Layer
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
    """Linear -> activation -> norm (ModernBERT only) -> Linear, on the first token or the mean of all tokens.

    BERT's pooler and classifier, and the classification heads of all other families, have this shape.
    """

    def __init__(
        self, width: int, architecture: ArchitectureConfig, dropout: float, norm: nn.Module, *, before: float
    ) -> None:
        """Allocate a classifier of `architecture`; `width` is D, and `norm` the body's output norm.

        `dropout` is applied before the last layer, and the dropout `before` before the first layer.
        """
        super().__init__()
        self.dense = nn.Linear(width, width, bias=architecture.classifier_bias)
        self.norm = norm
        self.output = LastLinear(width, architecture.classifier_logits)
        self.activation = ACTIVATIONS[architecture.classifier_activation]
        self.dropout = nn.Dropout(dropout)
        self.before = nn.Dropout(before)

    def forward(self, pooled: Tensor) -> Tensor:
        """Compute one float32 logit per pair, `[..]`, from `[.., D]`; for two classes it is `z1 - z0`."""
        inner = self.norm(self.activation(self.dense(self.before(pooled))))
        logits: Tensor = self.output(self.dropout(inner)).float()
        return one_logit(logits)


class ModularClassifier(nn.Module):
    """The modules of `ArchitectureConfig.classifier_modules`: linear maps and norms; the last one computes logits."""

    def __init__(self, width: int, architecture: ArchitectureConfig, dropout: float) -> None:
        """Allocate the modules; `width` is that of the input. Raises ValueError if the last one is not dense."""
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
        """Compute one float32 logit per pair, `[..]`, from `[.., D]`; for two classes it is `z1 - z0`."""
        return one_logit(self.logits(pooled))

    def logits(self, pooled: Tensor) -> Tensor:
        """Compute float32 logits `[.., 1]` or `[.., 2]` from `[.., D]`."""
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
        """Map `[.., D]` to `[.., width]`."""
        return self.activation(self.linear(pooled))


class _UnitLength(nn.Module):
    def forward(self, pooled: Tensor) -> Tensor:
        """Divide each vector by its length."""
        return functional.normalize(pooled, dim=-1)


def _norm(width: int, module: NormModule) -> nn.Module:
    return nn.LayerNorm(width) if module.kind == "layer_norm" else _UnitLength()


def one_logit(logits: Tensor) -> Tensor:
    """The logit of each pair, `[..]`: the only one of `[.., 1]`, or the difference `z1 - z0` of `[.., 2]`."""
    return logits[..., 0] if logits.shape[-1] == 1 else logits[..., 1] - logits[..., 0]


class Head(nn.Module):
    """h layers and a classifier. If it reads the first token, the last layer computes only that token."""

    def __init__(
        self, body: Body, width: int, architecture: ArchitectureConfig, dropout: float, *, before: float
    ) -> None:
        """Allocate one head with layers like those of `body`; `width` is D.

        If h is 0, the classifier reads the body's output. If all depths of the body share one layer, the head has one
        layer of its own, which runs h times. `dropout` is applied before the classifier's last layer, and the dropout
        `before` before its first layer.
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
        """Compute logits `[N]` from the body's output `[.., D]`."""
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
        """Compute logits `[..]` from the last layer's output for the tokens that the classifier reads, `[.., D]`."""
        logits: Tensor = self.classifier(self.norm(first))
        return logits

    def below_last(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute the last layer's input from the body's output `[.., D]`; the same tensor if there is one layer."""
        for depth in range(self.depth - 1):
            hidden = self.layers[depth % len(self.layers)](hidden, layout)
        return hidden

    @property
    def last_layer(self) -> Layer:
        """The layer that may compute only the first token; h must not be 0."""
        return cast(Layer, self.layers[-1])


class Heads(nn.ModuleList):
    """The k heads, which are computed one after the other."""

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute logits `[N, k]` from the body's output `[.., D]`."""
        return torch.stack([head(hidden, layout) for head in self], dim=1)
