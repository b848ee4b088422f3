"""The exits of the Cascade Transformer: pooling and three feed-forward layers (CT section 4.3, 5.2).

An exit may also read features of single tokens (`ExitConfig.token_features`), which the paper does not have.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.config import ExitConfig
from cerberank_models.network.layout import Layout
from cerberank_models.network.precision import LastLinear


class Exit(nn.Module):
    """An exit, which pools the tokens' hidden states (mean, first or last) and classifies. Exits share no weights."""

    def __init__(self, width: int, config: ExitConfig, dropout: float, norm: nn.Module) -> None:
        """Allocate an exit; `width` is D for the hidden states and the classifier, `norm` the body's output norm."""
        super().__init__()
        self.config = config
        self.norm = norm
        self.tokens = nn.Linear(width, config.token_features) if config.token_features else None
        self.dense = nn.ModuleList([nn.Linear(width + config.token_features, width), nn.Linear(width, width)])
        self.output = LastLinear(width, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Compute float32 logits `[N]` from hidden states `[.., D]`."""
        return self.classify(self.pool(hidden, layout))

    def pool(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Pool hidden states `[.., D]` to one vector per pair, `[N, D + F]` with F token features."""
        hidden = self.norm(hidden)
        reads = {"mean": layout.mean, "first": layout.first, "last": layout.last}
        pooled = reads[self.config.pooling](hidden)
        if self.tokens is None:
            return pooled
        return torch.cat([pooled, layout.mean(functional.gelu(self.tokens(hidden)))], dim=-1)

    def classify(self, pooled: Tensor) -> Tensor:
        """Compute float32 logits `[N]` from pooled vectors `[N, D + F]`."""
        for dense in self.dense:
            pooled = torch.tanh(dense(self.dropout(pooled)))
        logits: Tensor = self.output(self.dropout(pooled)).float()
        return logits[:, 0]
