"""The exits of the Cascade Transformer: pooling and three feed-forward layers (CT section 4.3, 5.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cerberank_models.config import Pooling
from cerberank_models.network.layout import Layout
from cerberank_models.network.precision import LastLinear


class Exit(nn.Module):
    """Reads the mean of all token encodings (or the first or the last token); shares nothing with other exits."""

    def __init__(self, width: int, pooling: Pooling, dropout: float, norm: nn.Module) -> None:
        """`width` D of the hidden states and of the classifier; `norm` is the body's output norm."""
        super().__init__()
        self.pooling = pooling
        self.norm = norm
        self.dense = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.output = LastLinear(width, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Hidden states `[.., D]` to float32 logits `[N]`."""
        return self.classify(self.pool(hidden, layout))

    def pool(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Hidden states `[.., D]` to one vector a pair, `[N, D]`; it has no trained parts but the norm's."""
        hidden = self.norm(hidden)
        reads = {"mean": layout.mean, "first": layout.first, "last": layout.last}
        return reads[self.pooling](hidden)

    def classify(self, pooled: Tensor) -> Tensor:
        """Pooled vectors `[N, D]` to float32 logits `[N]`."""
        for dense in self.dense:
            pooled = torch.tanh(dense(self.dropout(pooled)))
        logits: Tensor = self.output(self.dropout(pooled)).float()
        return logits[:, 0]
