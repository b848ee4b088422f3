"""The loss of TRMD (section 2.2): a hard pairwise loss, and the distillation of monoBERT's CLS and a bi-encoder's
representations. Annotations are evaluated here, because cyclopts reads those of `PairwiseObjective` in another module.

The functions are pure. Legend: N pairs or texts, T tokens, D width. Each returns a scalar, a mean over N. If all
processes have the same number of triples, the average over processes is therefore the mean over all triples.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn import functional

from cerberank_models.commands.values import RECIPE_KEY, NotNegative
from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.text_ranker import Reading


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


@dataclass(frozen=True, kw_only=True, slots=True)
class PairwiseObjective:
    """The settings of the loss, and its options; the defaults are the paper's. Without teachers it is TRMD's TR."""

    hard: Literal["hinge", "softmax"] = "hinge"
    """Loss on labels: a hinge on the softmax of both scores, or 1 - the positive's softmax."""
    margin: Annotated[NotNegative, RECIPE_KEY] = 1.0
    """Margin of the hinge loss."""
    # The encoder's output for every token is equation 5; the released code uses the last two, each for its bi-encoder.
    representations: Annotated[Literal["encoder", "projected", "post_residual"], RECIPE_KEY] = "encoder"
    """Vectors to learn from the bi-encoder: the encoder's, ColBERT's projected ones, or TwinBERT's one vector."""
    hard_weight: Annotated[NotNegative, RECIPE_KEY] = 1.0
    """Weight of the loss on labels."""
    cls_weight: Annotated[NotNegative, RECIPE_KEY] = 1.0
    """Weight of the loss between the first tokens' vectors."""
    representation_weight: Annotated[NotNegative, RECIPE_KEY] = 1.0
    """Weight of the loss between the representations."""

    def losses(self, student: Reading, *, mono: Reading | None, bi: Reading | None) -> dict[str, Tensor]:
        """The weighted losses by name; their sum is minimised. Positives and negatives alternate in every reading.

        A teacher that is None has no loss. Raises ValueError when a tensor to be compared does not exist.
        """
        positive, negative = student.scores[0::2], student.scores[1::2]
        hinge = self.hard == "hinge"
        hard = hinge_loss(positive, negative, self.margin) if hinge else softmax_loss(positive, negative)
        losses = {"hard": self.hard_weight * hard}
        if mono is not None:
            if student.cls is None or mono.cls is None:
                raise ValueError("monoBERT teaches ranker 1, which student and teacher must have")
            losses["cls"] = self.cls_weight * vector_loss(student.cls, mono.cls)
        if bi is not None:
            losses["representations"] = self.representation_weight * self._representations(student, bi)
        return losses

    def _representations(self, student: Reading, teacher: Reading) -> Tensor:
        if self.representations == "post_residual":
            if student.residual is None or teacher.residual is None:
                raise ValueError("post_residual needs TwinBERT's ranker in student and teacher")
            return vector_loss(student.residual, teacher.residual)
        sides = ((student.question, teacher.question), (student.document, teacher.document))
        if self.representations == "encoder":
            return torch.stack([token_loss(own.hidden, other.hidden, own.offsets) for own, other in sides]).mean()
        if any(side.projected_from is None for both in sides for side in both):
            raise ValueError("projected needs ColBERT's ranker in student and teacher")
        return torch.stack([token_loss(own.tokens, other.tokens, own.offsets) for own, other in sides]).mean()
