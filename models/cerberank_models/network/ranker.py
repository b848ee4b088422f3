"""The network of a checkpoint: embeddings, a body cut into stages by exits, and k heads.

One module for a plain cross-encoder, a CERBERUS, a cascade, and a CERBERUS with exits in its body.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from cerberank_models.config import RankerConfig
from cerberank_models.network.bodies.registry import BODIES
from cerberank_models.network.exits import Exit
from cerberank_models.network.heads import Head, Heads
from cerberank_models.network.layout import Layout, PackedLayout


class Ranker(nn.Module):
    """Scores pairs stage by stage; every stage gives logits `[N, c]`, c = k after the heads, else 1."""

    def __init__(self, config: RankerConfig, *, dropout: float = 0.0) -> None:
        """Allocate the network with PyTorch's initial weights; `dropout` acts in training only."""
        super().__init__()
        transformer, architecture = config.body, config.architecture
        self.config = config
        width = transformer.hidden_size
        self.encoder = body = BODIES[transformer.family](transformer, architecture.body_layers, dropout)
        # The checkpoint format names the body's modules by these attributes.
        self.embeddings, self.body = body.embeddings, body.layers
        self.exits = nn.ModuleList(Exit(width, exit_.pooling, dropout, body.output_norm()) for exit_ in config.exits)
        before = dropout if transformer.drops_pooled else 0.0
        self.heads = Heads(Head(body, width, architecture, dropout, before=before) for _ in range(architecture.heads))

    def run_stage(
        self, hidden: Tensor, layout: Layout, stage: int, *, heads: nn.Module | None = None
    ) -> tuple[Tensor, Tensor]:
        """Hidden states `[.., D]` to (hidden states after the stage's body layers, logits `[N, c]`).

        `heads` replaces the ranker's own heads by another form of them.
        """
        plan = self.config.stages[stage]
        hidden = self.encoder.run(hidden, layout, plan.start, plan.stop)
        if plan.kind == "exit":
            return hidden, self.exits[stage](hidden, layout)[:, None]
        return hidden, (self.heads if heads is None else heads)(hidden, layout)

    def forward(self, token_ids: Tensor, type_ids: Tensor, offsets: Tensor, stage: int = -1) -> Tensor:
        """Packed ids `[T]` with `offsets[N + 1]` straight to the logits `[N, c]` of one stage.

        Exits on the way are not computed.
        """
        return self.stage_logits(token_ids, type_ids, offsets, (stage % len(self.config.stages),))[0]

    def stage_logits(self, token_ids: Tensor, type_ids: Tensor, offsets: Tensor, stages: Sequence[int]) -> list[Tensor]:
        """As `forward`, for several `stages` in ascending order, in one pass through the body."""
        layout = PackedLayout.of(offsets)
        hidden = self.encoder.embed(token_ids, type_ids, layout)
        logits = []
        for stage, plan in enumerate(self.config.stages[: stages[-1] + 1]):
            if stage in stages:
                hidden, scores = self.run_stage(hidden, layout, stage)
                logits.append(scores)
            else:
                hidden = self.encoder.run(hidden, layout, plan.start, plan.stop)
        return logits
