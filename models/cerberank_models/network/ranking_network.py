"""The network of a checkpoint: embeddings, a body that exits divide into stages, and k heads.

The same module serves as a plain cross-encoder, a CERBERUS, a cascade, or a CERBERUS with exits in its body.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from cerberank_models.config import RankerConfig
from cerberank_models.network.bodies.body_types import BODIES
from cerberank_models.network.exits import Exit
from cerberank_models.network.heads import Head, Heads
from cerberank_models.network.layout import GroupedLayout, Layout, PackedLayout, by_length


class RankingNetwork(nn.Module):
    """Scores pairs stage by stage. Every stage computes logits `[N, c]`; c is k for the heads and 1 for an exit."""

    def __init__(self, config: RankerConfig, *, dropout: float = 0.0) -> None:
        """Allocate the network with PyTorch's initial weights; `dropout` applies in training only."""
        super().__init__()
        transformer, architecture = config.body, config.architecture
        self.config = config
        width = transformer.hidden_size
        self.encoder = body = BODIES[transformer.family](transformer, architecture.body_layers, dropout)
        # The names of these attributes are the names of weights in the checkpoint format.
        self.embeddings = body.embeddings
        self.body = body.layers
        self.exits = nn.ModuleList(Exit(width, exit_, dropout, body.output_norm()) for exit_ in config.exits)
        before = dropout if transformer.drops_pooled else 0.0
        self.heads = Heads(Head(body, width, architecture, dropout, before=before) for _ in range(architecture.heads))

    def run_stage(
        self, hidden: Tensor, layout: Layout, stage: int, *, heads: nn.Module | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run a stage on hidden states `[.., D]`; returns those after its body layers, and its logits `[N, c]`.

        `heads` are used instead of the ranker's own heads, such as a faster equivalent of them.
        """
        plan = self.config.stages[stage]
        hidden = self.encoder.run(hidden, layout, plan.start, plan.stop)
        if plan.kind == "exit":
            return hidden, self.exits[stage](hidden, layout)[:, None]
        return hidden, (self.heads if heads is None else heads)(hidden, layout)

    def forward(self, token_ids: Tensor, type_ids: Tensor, offsets: Tensor, stage: int = -1) -> Tensor:
        """Compute the logits `[N, c]` of one stage from packed ids `[T]` with `offsets[N + 1]`.

        The exits of earlier stages are not computed.
        """
        return self.stage_logits(token_ids, type_ids, offsets, (stage % len(self.config.stages),))[0]

    def stage_logits(self, token_ids: Tensor, type_ids: Tensor, offsets: Tensor, stages: Sequence[int]) -> list[Tensor]:
        """Compute the same as `forward` for several `stages`, in ascending order, in one pass through the body.

        On a processor attention runs on groups of pairs of similar length (`GroupedLayout`).
        """
        if token_ids.device.type == "cpu":
            order, tokens, ordered = by_length(offsets)
            logits = self._stage_logits(token_ids[tokens], type_ids[tokens], GroupedLayout.of(ordered), stages)
            return [each[order.argsort()] for each in logits]
        return self._stage_logits(token_ids, type_ids, PackedLayout.of(offsets), stages)

    def _stage_logits(self, token_ids: Tensor, type_ids: Tensor, layout: Layout, stages: Sequence[int]) -> list[Tensor]:
        hidden = self.encoder.embed(token_ids, type_ids, layout)
        logits = []
        for stage, plan in enumerate(self.config.stages[: stages[-1] + 1]):
            if stage in stages:
                hidden, scores = self.run_stage(hidden, layout, stage)
                logits.append(scores)
            else:
                hidden = self.encoder.run(hidden, layout, plan.start, plan.stop)
        return logits
