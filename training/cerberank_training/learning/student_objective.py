"""The loss that a training step minimises: heads learn from labels and teachers, exits from labels or the heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import torch
from cyclopts import Group, Parameter
from cyclopts.validators import Number
from torch import Tensor

from cerberank_models.commands.values import RECIPE_KEY, NotNegative, listed
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
from cerberank_training.learning.strategies import Choice, lessons

TeacherLoss: TypeAlias = Literal["kl", "mse", "margin-mse", "listwise"]
COMPARES: tuple[TeacherLoss, ...] = ("margin-mse", "listwise")
"""The losses that compare the candidates of a question."""


@Parameter(name="*", group=Group("Losses", sort_key=2))
@dataclass(frozen=True, kw_only=True, slots=True)
class StudentObjective:
    """The losses of heads and exits, which are options of `train distil`.

    A tuple has one value for all heads, or one for each head.
    """

    strategy: Choice | None = None
    """Losses of one head with several teachers: their sum (kd_sum), or one teacher at each step in turn (kd_rr)."""
    alpha: Annotated[tuple[float, ...], listed(float, "0.1 or 0,0.5,1", within=Number(gte=0, lte=1))] = (0.5,)
    """Weight of the labels against the teachers, 0 to 1: one number, or one per head (0.1 or 0,0.5,1)."""
    tau: Annotated[tuple[float, ...], listed(float, "5 or 1,3,5", within=Number(gt=0, lt=math.inf))] = (3.0,)
    """Temperature of the distillation: one number, or one per head (5 or 1,3,5)."""
    # `mse` and `margin-mse` have no temperature.
    teacher_loss: TeacherLoss = "kl"
    """Loss against the teachers' scores: kl is the papers'; margin-mse and listwise compare a question's candidates."""
    weights: Annotated[
        tuple[float, ...],
        listed(float, "1 or 1,0,1", within=Number(gte=0, lt=math.inf)),
        Parameter(name="lambda"),
        RECIPE_KEY,
    ] = (1.0,)
    """Weights of the heads' losses: one number, or one per head."""
    # CT: the labels. From the heads they learn with the settings of head 1, which is in no paper.
    exits: Annotated[Literal["labels", "heads"], Parameter(name="exits-learn")] = "labels"
    """Targets of the exits: the labels, or the scores of the model's own heads."""
    listwise_weight: NotNegative = 0.0
    """Weight of the listwise loss on the labels; 0 in the papers."""

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

    def lesson(self, head: int, heads: int, teachers: Sequence[object]) -> tuple[object, ...]:
        """All that determines the loss of one of the `heads` with given logits; the same if they learn the same."""
        pairs = lessons(self.strategy, step=0, heads=heads, teachers=len(teachers))
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
        match self.teacher_loss:
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
        if self.listwise_weight:
            loss = loss + self.listwise_weight * listwise_loss(logits, batch.labels, batch.questions)
        return loss


def _of(values: tuple[float, ...], head: int) -> float:
    return values[head if len(values) > 1 else 0]
