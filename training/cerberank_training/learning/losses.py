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


def squared_loss(logits: Tensor, teachers: Tensor) -> Tensor:
    """The mean of `(logits - teachers)^2`, both `[N, c]`, to `[c]`: MSE on the teacher's log-odds.

    >>> squared_loss(torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0], [1.0]])).tolist()
    [2.0]
    """
    return functional.mse_loss(logits, teachers, reduction="none").mean(dim=0)


def margin_loss(logits: Tensor, teachers: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
    """Margin-MSE (Hofstätter et al. 2020): the mean over a question's positives and negatives of
    `((z+ - z-) - (t+ - t-))^2`, then over questions, `[c]`. Questions without one of them count as 0.

    With `e = z - t` it is the variance of e among positives, plus that among negatives, plus the squared difference of
    their means; the question's pairs need not be listed.

    >>> student, teacher = torch.tensor([[3.0], [1.0], [0.0]]), torch.tensor([[1.0], [0.0], [1.0]])
    >>> labels, offsets = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0, 3])
    >>> margin_loss(student, teacher, labels, offsets).tolist()  # margins 2 and 3, the teacher's 1 and 0: (1 + 9) / 2
    [5.0]
    """
    error = logits - teachers
    kinds = torch.stack([labels, 1 - labels])
    counts = torch.stack([_by_question(kind[:, None], offsets) for kind in kinds])
    means, squares = (
        torch.stack([_by_question(kind[:, None] * value, offsets) for kind in kinds]) / counts.clamp(min=1)
        for value in (error, error**2)
    )
    loss = (squares - means**2).sum(dim=0) + (means[0] - means[1]) ** 2
    both = (counts > 0).all(dim=0)
    return (loss * both).sum(dim=0) / (len(offsets) - 1)


def ranking_loss(logits: Tensor, teachers: Tensor, tau: float, offsets: Tensor) -> Tensor:
    """`tau^2 KL(softmax(teachers / tau) || softmax(logits / tau))` among each question's candidates, `[c]`: ListNet
    (Cao et al. 2007) on the teacher's scores.

    >>> student, teacher = torch.zeros(2, 1), torch.tensor([[3.0], [1.0]]).log()
    >>> offsets = torch.tensor([0, 2])
    >>> round(ranking_loss(student, teacher, 1.0, offsets).item(), 4)  # .75 log(.75 / .5) + .25 log(.25 / .5)
    0.1308
    """
    ours, theirs = (_log_softmax(values / tau, offsets) for values in (logits, teachers))
    return tau**2 * (theirs.exp() * (theirs - ours)).sum(dim=0) / (len(offsets) - 1)


def listwise_loss(logits: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
    """Softmax cross entropy among the candidates of each question, `offsets[Q + 1]` into the N pairs; `[c]`.

    With several positives their log-probabilities are averaged. Questions without a positive count as 0.

    >>> logits = torch.tensor([[0.0], [0.0], [0.0], [0.0]])
    >>> labels, offsets = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 4])
    >>> round(listwise_loss(logits, labels, offsets).item(), 4)  # log 4
    1.3863
    """
    log_p = _log_softmax(logits, offsets)
    positives = _by_question(labels[:, None], offsets).clamp(min=1.0)
    share = labels[:, None] / positives[_owners(offsets)]
    return -(share * log_p).sum(dim=0) / (len(offsets) - 1)


def _log_softmax(logits: Tensor, offsets: Tensor) -> Tensor:
    """The log-probabilities `[N, c]` of pairs among those of their question."""
    sizes, owner = offsets.diff(), _owners(offsets)
    place = torch.arange(len(logits), device=logits.device) - offsets[:-1][owner]
    grid = logits.new_full((len(sizes), int(sizes.max()), logits.shape[1]), float("-inf"))
    return grid.index_put((owner, place), logits).log_softmax(dim=1)[owner, place]


def _by_question(values: Tensor, offsets: Tensor) -> Tensor:
    """The sums `[Q, c]` of `values[N, c]`."""
    return values.new_zeros(len(offsets) - 1, values.shape[1]).index_add(0, _owners(offsets), values)


def _owners(offsets: Tensor) -> Tensor:
    """The question of each pair, `[N]`."""
    return torch.repeat_interleave(torch.arange(len(offsets) - 1, device=offsets.device), offsets.diff())
