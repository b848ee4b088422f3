"""The exits of the Cascade Transformer: pooling and three feed-forward layers (CT section 4.3, 5.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cerberank_models.config import Pooling
from cerberank_models.network.layout import Layout
from cerberank_models.network.precision import LastLinear


class Exit(nn.Module):
    """An exit, which pools the tokens' hidden states (mean, first or last) and classifies. Exits share no weights."""

    def __init__(self, width: int, pooling: Pooling, dropout: float, norm: nn.Module) -> None:
        """Allocate an exit; `width` is D for the hidden states and the classifier, `norm` the body's output norm."""
        super().__init__()
        self.pooling = pooling
        self.norm = norm
        self.dense = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.output = LastLinear(width, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute float32 logits `[N]` from hidden states `[.., D]`."""
        return self.classify(self.pool(hidden, layout))

    def pool(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Pool hidden states `[.., D]` to one vector per pair, `[N, D]`. Only the norm in it has weights."""
        hidden = self.norm(hidden)
        reads = {"mean": layout.mean, "first": layout.first, "last": layout.last}
        return reads[self.pooling](hidden)

    def classify(self, pooled: Tensor) -> Tensor:
        """Compute float32 logits `[N]` from pooled vectors `[N, D]`."""
        for dense in self.dense:
            pooled = torch.tanh(dense(self.dropout(pooled)))
        logits: Tensor = self.output(self.dropout(pooled)).float()
        return logits[:, 0]
