"""The loss that a training step minimises: heads learn from labels and teachers, exits from labels or the heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from cerberank_training.learning.batch import Batch
from cerberank_training.learning.losses import (
    distillation_loss,
    knowledge_distillation_loss,
    listwise_loss,
    margin_loss,
    pointwise_loss,
    ranking_loss,
    squared_loss,
)
from cerberank_training.learning.strategies import Strategy, lessons

SoftLoss: TypeAlias = Literal["kl", "mse", "margin-mse", "listwise"]
COMPARES: tuple[SoftLoss, ...] = ("margin-mse", "listwise")
"""The losses that compare the candidates of a question."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StudentObjective:
    """The strategy and its settings. A tuple has one value for all heads, or one for each head."""

    strategy: Strategy = "hard"
    alpha: tuple[float, ...] = (0.5,)
    """Weight of the loss on labels; the loss on the teacher has 1 - alpha. CERBERUS's grid: 0, .1, .5, .9."""
    tau: tuple[float, ...] = (3.0,)
    """The distillation temperature. CERBERUS's grid: 1, 3, 5."""
    weights: tuple[float, ...] = (1.0,)
    """The weights lambda_i of the heads' losses in their sum."""
    listwise: float = 0.0
    """Weight of the listwise loss that is added to the pointwise loss; 0 in the paper."""
    soft_loss: SoftLoss = "kl"
    """The loss by which a head learns from a teacher's scores; the papers use `kl`.

    `mse` and `margin-mse` have no temperature.
    """
    exits: Literal["labels", "heads"] = "labels"
    """The targets of the exits: the labels (CT), or the model's own heads with the settings of head 1 (in no paper)."""

    def heads_loss(
        self,
        logits: Tensor,
        batch: Batch,
        *,
        step: int,
        pair_share: float = 1.0,
        parts: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """The sum of `lambda_i L_i` over the heads, from `logits[N, k]`.

        `pair_share` is the factor for means over pairs when several processes share the pairs of a step. The losses are
        added to `parts` by name, before they are multiplied by lambda_i: `head_i` is L_i (for `kd_sum` the sum over
        teachers), `head_i/labels` its loss on labels, and `head_i/teacher_j` its loss on a teacher's scores.
        """
        parts = {} if parts is None else parts
        heads = logits.shape[1]
        hard = self._hard(logits, batch, pair_share)
        pairs = lessons(self.strategy, step=step, heads=heads, teachers=batch.teachers.shape[1])
        if not pairs:
            parts |= {f"head_{head + 1}": hard[head] for head in range(heads)}
            return torch.stack([_of(self.weights, head) * hard[head] for head in range(heads)]).sum()
        losses = []
        for head, teacher in pairs:
            scores = batch.teachers[:, teacher : teacher + 1]
            soft = self._soft(logits[:, head : head + 1], scores, batch, _of(self.tau, head), pair_share)
            loss = knowledge_distillation_loss(hard[head], soft, _of(self.alpha, head))
            losses.append(_of(self.weights, head) * loss)
            name = f"head_{head + 1}"
            parts |= {f"{name}/labels": hard[head], f"{name}/teacher_{teacher + 1}": soft}
            parts[name] = parts[name] + loss if name in parts else loss
        return torch.stack(losses).sum()

    def lesson(self, head: int, teachers: Sequence[object]) -> tuple[object, ...]:
        """All that determines the loss of a head with given logits; the same for heads that learn the same."""
        pairs = lessons(self.strategy, step=0, heads=head + 1, teachers=len(teachers))
        taught = [teachers[teacher] for of, teacher in pairs if of == head]
        return (_of(self.weights, head), *((taught, _of(self.alpha, head), _of(self.tau, head)) if taught else ()))

    def exit_loss(self, logits: Tensor, batch: Batch, heads: Tensor | None, *, pair_share: float = 1.0) -> Tensor:
        """The loss of one exit, from its `logits[N, 1]` and, if exits learn from heads, the logits `heads[N, k]`."""
        hard = self._hard(logits, batch, pair_share)[0]
        if heads is None:
            return hard
        # The score for ranking is the mean of the heads' probabilities; the exit learns the logit of this mean.
        target = heads.detach().sigmoid().mean(dim=1, keepdim=True).logit(eps=1e-6)
        soft = pair_share * distillation_loss(logits, target, self.tau[0])[0]
        return knowledge_distillation_loss(hard, soft, self.alpha[0])

    def _soft(self, logits: Tensor, scores: Tensor, batch: Batch, tau: float, pair_share: float) -> Tensor:
        """The loss of one head's `logits[N, 1]` against a teacher's `scores[N, 1]`."""
        match self.soft_loss:
            case "kl":
                return pair_share * distillation_loss(logits, scores, tau)[0]
            case "mse":
                return pair_share * squared_loss(logits, scores)[0]
            case "margin-mse":
                return margin_loss(logits, scores, batch.labels, batch.questions)[0]
            case "listwise":
                return ranking_loss(logits, scores, tau, batch.questions)[0]

    def _hard(self, logits: Tensor, batch: Batch, pair_share: float) -> Tensor:
        loss = pair_share * pointwise_loss(logits, batch.labels)
        if self.listwise:
            loss = loss + self.listwise * listwise_loss(logits, batch.labels, batch.questions)
        return loss


def _of(values: tuple[float, ...], head: int) -> float:
    return values[head if len(values) > 1 else 0]
