"""The loss of TRMD (section 2.2): a hard pairwise loss, and the distillation of monoBERT's CLS and a bi-encoder's
representations.

The functions are pure. Legend: N pairs or texts, T tokens, D width. Each returns a scalar, a mean over N. If all
processes have the same number of triples, the average over processes is therefore the mean over all triples.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.text_ranker import Reading
from cerberank_papers.pairwise.settings import PairwiseObjective


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


def losses_of(
    objective: PairwiseObjective, student: Reading, *, mono: Reading | None, bi: Reading | None
) -> dict[str, Tensor]:
    """The weighted losses by name; their sum is minimised. Positives and negatives alternate in every reading.

    A teacher that is None has no loss. Raises ValueError when a tensor to be compared does not exist.
    """
    positive, negative = student.scores[0::2], student.scores[1::2]
    hinge = objective.hard == "hinge"
    hard = hinge_loss(positive, negative, objective.margin) if hinge else softmax_loss(positive, negative)
    losses = {"hard": objective.hard_weight * hard}
    if mono is not None:
        if student.cls is None or mono.cls is None:
            raise ValueError("monoBERT teaches ranker 1, which student and teacher must have")
        losses["cls"] = objective.cls_weight * vector_loss(student.cls, mono.cls)
    if bi is not None:
        losses["representations"] = objective.representation_weight * _representations(
            objective.representations, student, bi
        )
    return losses


def _representations(kind: str, student: Reading, teacher: Reading) -> Tensor:
    if kind == "post_residual":
        if student.residual is None or teacher.residual is None:
            raise ValueError("post_residual needs TwinBERT's ranker in student and teacher")
        return vector_loss(student.residual, teacher.residual)
    sides = ((student.question, teacher.question), (student.document, teacher.document))
    if kind == "encoder":
        return torch.stack([token_loss(own.hidden, other.hidden, own.offsets) for own, other in sides]).mean()
    if any(side.projected_from is None for both in sides for side in both):
        raise ValueError("projected needs ColBERT's ranker in student and teacher")
    return torch.stack([token_loss(own.tokens, other.tokens, own.offsets) for own, other in sides]).mean()
