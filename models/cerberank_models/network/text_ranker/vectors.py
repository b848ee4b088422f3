"""What a bi-encoder computes of a text before the other side is known: the network of a first stage (TRMD section 3).

Its weights are named as a `TextRanker`'s, of which it has the encoder and ColBERT's projection.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.config import FirstStageConfig
from cerberank_models.network.bodies.registry import BODIES
from cerberank_models.network.layout import Layout, PackedLayout
from cerberank_models.network.text_ranker.rankers import ColbertRanker


class TextVectors(nn.Module):
    """Texts, each alone, to what the rankers of a first stage read. For inference: there is no dropout."""

    def __init__(self, config: FirstStageConfig) -> None:
        """Allocate the network with PyTorch's initial weights."""
        super().__init__()
        transformer = config.transformer
        self.config = config
        self.encoder = body = BODIES[transformer.family](transformer, transformer.layers, 0.0)
        self.embeddings, self.body, self.norm = body.embeddings, body.layers, body.output_norm()
        colbert = config.token_ranker == "colbert"
        self.token_ranker = ColbertRanker(transformer.hidden_size, config.projection) if colbert else None

    def forward(self, token_ids: Tensor, type_ids: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor | None]:
        """As `read`, on packed ids `[T]` with `offsets[N + 1]`."""
        return self.read(token_ids, type_ids, PackedLayout.of(offsets))

    def read(self, token_ids: Tensor, type_ids: Tensor, layout: Layout) -> tuple[Tensor, Tensor | None]:
        """The part of each text's vector with a fixed width `[N, W]`, and ColBERT's token vectors `[.., P]` if any."""
        hidden = self.encoder.embed(token_ids, type_ids, layout)
        hidden = self.norm(self.encoder.run(hidden, layout, 0, self.config.transformer.layers))
        parts = [layout.first(hidden)] if self.config.first_ranker else []
        if self.config.token_ranker == "twin":
            parts.append(layout.mean(hidden))
        if self.config.token_ranker == "dot":
            parts.append(functional.normalize(layout.mean(hidden).float(), dim=-1).to(hidden.dtype))
        fixed = torch.cat(parts, dim=-1) if parts else layout.first(hidden)[:, :0]
        return fixed, None if self.token_ranker is None else self.token_ranker(hidden)
