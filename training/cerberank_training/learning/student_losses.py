"""The loss that a training step minimises: heads learn from labels and teachers, exits from labels or the heads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

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
from cerberank_training.learning.settings import StudentConfig, StudentObjective, of_head
from cerberank_training.learning.strategies import lessons
from cerberank_training.runs.loop import Losses


@dataclass(frozen=True, slots=True)
class StudentLoss:
    """The loss of a batch, and the losses of heads, exits and teachers."""

    config: StudentConfig
    objective: StudentObjective
    stages: int
    """The number of exits, and one for the heads."""
    has_heads: bool

    def __call__(self, step: int, forward: nn.Module, batch: Batch, pair_factor: float) -> tuple[Tensor, Losses]:
        """The sum over the stages that `step` trains; `forward` gives the logits of stages."""
        objective, last_stage = self.objective, self.stages - 1
        trained = self.config.trained(step, self.stages)
        # Exits that learn from the heads need the heads' logits in steps that train no head, too.
        computed = trained if objective.exits == "labels" or last_stage in trained else (*trained, last_stage)
        logits = {stage: each.float() for stage, each in zip(computed, forward(batch, computed), strict=True)}
        heads = logits[last_stage] if objective.exits == "heads" else None
        parts: dict[str, Tensor] = {}
        losses = []
        for stage in trained:
            if stage == last_stage and self.has_heads:
                loss = heads_loss(objective, logits[stage], batch, step=step, pair_factor=pair_factor, parts=parts)
            else:
                loss = exit_loss(objective, logits[stage], batch, heads, pair_factor=pair_factor)
                parts[f"exit_{stage + 1}"] = loss
            losses.append(loss)
        return torch.stack(losses).sum(), parts


def heads_loss(
    objective: StudentObjective,
    logits: Tensor,
    batch: Batch,
    *,
    step: int,
    pair_factor: float = 1.0,
    parts: dict[str, Tensor] | None = None,
) -> Tensor:
    """The sum of `lambda_i L_i` over the heads, from `logits[N, k]`.

    `pair_factor` is the loop's factor for means over pairs. The losses are
    added to `parts` by name, before they are multiplied by lambda_i: `head_i` is L_i (for `kd_sum` the sum over
    teachers), `head_i/labels` its loss on labels, and `head_i/teacher_j` its loss on a teacher's scores.
    """
    parts = {} if parts is None else parts
    heads = logits.shape[1]
    hard = _hard(objective, logits, batch, pair_factor)
    taught = _mean_score(batch.teachers) if objective.strategy == "kd_mean" else batch.teachers
    pairs = lessons(objective.strategy, step=step, heads=heads, teachers=taught.shape[1])
    if not pairs:
        parts |= {f"head_{head + 1}": hard[head] for head in range(heads)}
        return torch.stack([of_head(objective.weights, head) * hard[head] for head in range(heads)]).sum()
    losses = []
    for head, teacher in pairs:
        scores = taught[:, teacher : teacher + 1]
        soft = _soft(
            objective,
            logits[:, head : head + 1],
            scores,
            batch,
            tau=of_head(objective.tau, head),
            pair_factor=pair_factor,
        )
        loss = knowledge_distillation_loss(hard[head], soft, of_head(objective.alpha, head))
        losses.append(of_head(objective.weights, head) * loss)
        name = f"head_{head + 1}"
        parts |= {f"{name}/labels": hard[head], f"{name}/teacher_{teacher + 1}": soft}
        parts[name] = parts[name] + loss if name in parts else loss
    return torch.stack(losses).sum()


def exit_loss(
    objective: StudentObjective, logits: Tensor, batch: Batch, heads: Tensor | None, *, pair_factor: float = 1.0
) -> Tensor:
    """The loss of one exit, from its `logits[N, 1]` and, if exits learn from heads, the logits `heads[N, k]`."""
    hard = _hard(objective, logits, batch, pair_factor)[0]
    if heads is None:
        return hard
    # The score for ranking is the mean of the heads' probabilities; the exit learns the logit of this mean.
    soft = pair_factor * distillation_loss(logits, _mean_score(heads.detach()), objective.tau[0])[0]
    return knowledge_distillation_loss(hard, soft, objective.alpha[0])


def _mean_score(logits: Tensor) -> Tensor:
    """The logit `[N, 1]` of the mean of the probabilities of `logits[N, k]`."""
    return logits.sigmoid().mean(dim=1, keepdim=True).logit(eps=1e-6)


def _soft(
    objective: StudentObjective, logits: Tensor, scores: Tensor, batch: Batch, *, tau: float, pair_factor: float
) -> Tensor:
    """The loss of one head's `logits[N, 1]` against a teacher's `scores[N, 1]`."""
    match objective.teacher_loss:
        case "kl":
            return pair_factor * distillation_loss(logits, scores, tau)[0]
        case "mse":
            return pair_factor * squared_loss(logits, scores)[0]
        case "margin-mse":
            return margin_loss(logits, scores, batch.labels, batch.questions)[0]
        case "listwise":
            return ranking_loss(logits, scores, tau, batch.questions)[0]


def _hard(objective: StudentObjective, logits: Tensor, batch: Batch, pair_factor: float) -> Tensor:
    loss = pair_factor * pointwise_loss(logits, batch.labels)
    if objective.listwise_weight:
        loss = loss + objective.listwise_weight * listwise_loss(logits, batch.labels, batch.questions)
    return loss
