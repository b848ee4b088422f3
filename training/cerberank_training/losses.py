"""Losses of students on hard labels: pure functions of logits.

Legend: Q questions, N pairs (those of one question lie together), c logits a pair (k heads, or the
one of an exit). Every loss is a mean over its examples, summed over the c columns: each head learns
from its own loss only, the body from all (CERBERUS section 3, lambda_i = 1).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def pointwise_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross entropy of `logits[N, c]` against `labels[N]`; for two classes pass `z1 - z0`.

    >>> round(pointwise_loss(torch.tensor([[0.0], [0.0]]), torch.tensor([1.0, 0.0])).item(), 4)
    0.6931
    """
    targets = labels[:, None].expand_as(logits)
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=0).sum()


def listwise_loss(logits: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
    """Softmax cross entropy among the candidates of each question, `offsets[Q + 1]` into the N pairs.

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
    return -(share[:, None] * log_p).sum() / len(sizes)
