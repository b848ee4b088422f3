"""The losses of students, as pure functions of logits.

Legend: Q questions; N pairs, with the pairs of a question next to each other; c logits for each pair (k for k heads, 1
for an exit). A logit of a student or teacher is the difference d = z1 - z0 of two classes, because only d matters:
softmax(z / tau)[1] = sigmoid(d / tau). A loss is a mean over its examples with one value for each column, `[c]`: each
head learns from its own loss only, and the body from all of them (CERBERUS section 3).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def pointwise_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross entropy of `logits[N, c]` against `labels[N]`; shape `[c]`.

    >>> [round(x, 4) for x in pointwise_loss(torch.tensor([[0.0], [0.0]]), torch.tensor([1.0, 0.0])).tolist()]  # log 2
    [0.6931]
    """
    targets = labels[:, None].expand_as(logits)
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=0)


def distillation_loss(logits: Tensor, teachers: Tensor, tau: float) -> Tensor:
    """`tau^2 KL(sigmoid(teachers / tau) || sigmoid(logits / tau))`, from `[N, c]` each to `[c]` (Hinton et al. 2015).

    In the example the teacher's odds are 3 : 1 (d = log 3), and the student's are 1 : 1. With tau = 1 the result is
    KL = .75 log(.75 / .5) + .25 log(.25 / .5) = .1308. With tau = 2 the teacher's odds are sqrt(3) : 1; then KL is
    .03634, which is multiplied by 4.

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
    """The mean squared error from the teacher's log-odds: the mean of `(logits - teachers)^2`, `[N, c]` to `[c]`.

    >>> squared_loss(torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0], [1.0]])).tolist()
    [2.0]
    """
    return functional.mse_loss(logits, teachers, reduction="none").mean(dim=0)


def margin_loss(logits: Tensor, teachers: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
    """Margin-MSE (Hofstätter et al. 2020); shape `[c]`.

    The loss of a question is the mean of `((z+ - z-) - (t+ - t-))^2` over its positives and negatives, or 0 if it lacks
    either; the result is the mean over questions. With `e = z - t` the loss of a question equals the variance of e
    among positives, plus the variance among negatives, plus the squared difference of both means. Therefore it is
    computed without listing all combinations.

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
    """ListNet (Cao et al. 2007) on the teacher's scores; shape `[c]`.

    It is `tau^2 KL(softmax(teachers / tau) || softmax(logits / tau))` over the candidates of each question.

    >>> student, teacher = torch.zeros(2, 1), torch.tensor([[3.0], [1.0]]).log()
    >>> offsets = torch.tensor([0, 2])
    >>> round(ranking_loss(student, teacher, 1.0, offsets).item(), 4)  # .75 log(.75 / .5) + .25 log(.25 / .5)
    0.1308
    """
    ours, theirs = (_log_softmax(values / tau, offsets) for values in (logits, teachers))
    return tau**2 * (theirs.exp() * (theirs - ours)).sum(dim=0) / (len(offsets) - 1)


def listwise_loss(logits: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
    """Softmax cross entropy over the candidates of each question, which owns pairs by `offsets[Q + 1]`; shape `[c]`.

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
    """The log-softmax `[N, c]` of the pairs, over the pairs of each question."""
    sizes, owner = offsets.diff(), _owners(offsets)
    place = torch.arange(len(logits), device=logits.device) - offsets[:-1][owner]
    grid = logits.new_full((len(sizes), int(sizes.max()), logits.shape[1]), float("-inf"))
    return grid.index_put((owner, place), logits).log_softmax(dim=1)[owner, place]


def _by_question(values: Tensor, offsets: Tensor) -> Tensor:
    """The sums `[Q, c]` of `values[N, c]` over the pairs of each question."""
    return values.new_zeros(len(offsets) - 1, values.shape[1]).index_add(0, _owners(offsets), values)


def _owners(offsets: Tensor) -> Tensor:
    """The question of each pair, `[N]`."""
    return torch.repeat_interleave(torch.arange(len(offsets) - 1, device=offsets.device), offsets.diff())
