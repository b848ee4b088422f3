"""TRMD's losses (section 2.2), as pure functions. Legend: N pairs or texts, T tokens, D width. Each returns a scalar.

Every loss is a mean over N. If all processes have the same number of triples, the average over processes is therefore
the mean over all triples.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from cerberank_models.network.layout import PackedLayout


def hinge_loss(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """The paper's hard loss: the mean of `max(0, margin - p+ + p-)`, where p is the softmax of the two scores `[N]`.

    >>> round(hinge_loss(torch.tensor([0.0]), torch.tensor([0.0]), 1.0).item(), 4)
    1.0
    """
    difference = (positive - negative).sigmoid() - (negative - positive).sigmoid()
    return functional.relu(margin - difference).mean()


def softmax_loss(positive: Tensor, negative: Tensor) -> Tensor:
    """The released code's hard loss: the mean of `1 - p+`, which is half of `hinge_loss` with margin 1.

    >>> round(softmax_loss(torch.tensor([0.0]), torch.tensor([0.0])).item(), 4)
    0.5
    """
    return (negative - positive).sigmoid().mean()


def vector_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """The mean squared error of `[N, D]`.

    >>> vector_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 4.0]])).item()
    2.0
    """
    return functional.mse_loss(student.float(), teacher.float())


def token_loss(student: Tensor, teacher: Tensor, offsets: Tensor) -> Tensor:
    """The mean squared error of packed tokens `[T, D]`: the mean over texts of the mean over each text's tokens.

    Text i has the tokens `offsets[i]:offsets[i + 1]`. Long and short texts have the same weight; there is no padding.

    >>> tokens = torch.tensor([[1.0], [0.0], [0.0]])
    >>> token_loss(tokens, torch.zeros(3, 1), torch.tensor([0, 1, 3])).item()
    0.5
    """
    squared = (student.float() - teacher.float()).square().mean(dim=1, keepdim=True)
    return PackedLayout.of(offsets).mean(squared).mean()


def mean_of(losses: list[Tensor]) -> Tensor:
    """The mean of scalars."""
    return torch.stack(losses).mean()
