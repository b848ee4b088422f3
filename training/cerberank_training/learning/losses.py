"""The losses of students, as pure functions of logits.

Legend: Q questions, N pairs (those of one question lie together), c logits a pair (k heads, or the
one of an exit). For two classes only d = z1 - z0 matters: softmax(z / tau)[1] = sigmoid(d / tau),
so a logit, of a student or a teacher, is that one float. Every loss is a mean over its examples, one
value a column `[c]`: each head learns from its own loss only, the body from all (CERBERUS section 3).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def logit_difference(logits: Tensor) -> Tensor:
    """`logits[N, 1 or 2]` to `d[N]` in fp32: `z1 - z0` of two classes, the logit itself of one."""
    logits = logits.float()
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


def pointwise_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross entropy of `logits[N, c]` against `labels[N]`, `[c]`: CE of two classes.

    >>> [round(x, 4) for x in pointwise_loss(torch.tensor([[0.0], [0.0]]), torch.tensor([1.0, 0.0])).tolist()]  # log 2
    [0.6931]
    """
    targets = labels[:, None].expand_as(logits)
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=0)


def distillation_loss(logits: Tensor, teachers: Tensor, tau: float) -> Tensor:
    """`tau^2 KL(sigmoid(teachers / tau) || sigmoid(logits / tau))`, both `[N, c]`, to `[c]` (Hinton).

    A teacher at 3 : 1 (d = log 3), a student at 1 : 1: KL = .75 log(.75 / .5) + .25 log(.25 / .5) = .1308;
    with tau = 2 the teacher's odds are sqrt(3) : 1, KL = .03634, times 4.

    >>> student, teacher = torch.zeros(1, 1), torch.full((1, 1), 3.0).log()
    >>> [round(distillation_loss(student, teacher, tau).item(), 4) for tau in (1.0, 2.0)]
    [0.1308, 0.1454]
    """
    target = (teachers / tau).sigmoid()
    cross = functional.binary_cross_entropy_with_logits(logits / tau, target, reduction="none")
    entropy = functional.binary_cross_entropy(target, target, reduction="none")
    return tau**2 * (cross - entropy).mean(dim=0)


def knowledge_distillation_loss(hard: Tensor, soft: Tensor, alpha: float) -> Tensor:
    """`L_KD = alpha hard + (1 - alpha) soft` (CERBERUS section 3); `soft` includes the factor tau^2, also at alpha 0.

    >>> knowledge_distillation_loss(torch.tensor(1.0), torch.tensor(3.0), 0.25).item()
    2.5
    """
    return alpha * hard + (1 - alpha) * soft


def listwise_loss(logits: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
    """Softmax cross entropy among the candidates of each question, `offsets[Q + 1]` into the N pairs; `[c]`.

    With several positives their log-probabilities are averaged. Questions without a positive count as 0.

    >>> logits = torch.tensor([[0.0], [0.0], [0.0], [0.0]])
    >>> labels, offsets = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 4])
    >>> round(listwise_loss(logits, labels, offsets).item(), 4)  # log 4
    1.3863
    """
    sizes = offsets.diff()
    owner = torch.repeat_interleave(torch.arange(len(sizes), device=logits.device), sizes)
    place = torch.arange(len(logits), device=logits.device) - offsets[:-1][owner]
    grid = logits.new_full((len(sizes), int(sizes.max()), logits.shape[1]), float("-inf"))
    log_p = grid.index_put((owner, place), logits).log_softmax(dim=1)[owner, place]
    positives = torch.zeros(len(sizes), device=logits.device).index_add(0, owner, labels).clamp(min=1.0)
    share = labels / positives[owner]
    return -(share[:, None] * log_p).sum(dim=0) / len(sizes)
