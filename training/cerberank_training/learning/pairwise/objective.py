"""The loss of TRMD: a hard pairwise loss, and the distillation of monoBERT's CLS and a bi-encoder's representations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from cerberank_models.network.text_ranker import Reading
from cerberank_training.learning.pairwise.losses import hinge_loss, mean_of, softmax_loss, token_loss, vector_loss


@dataclass(frozen=True, kw_only=True, slots=True)
class PairwiseObjective:
    """The settings of the loss; the defaults are the paper's. Without teachers it is TRMD's system TR."""

    hard: Literal["hinge", "softmax"] = "hinge"
    """`hinge` is the paper's loss, with `margin`; `softmax` is the released code's, half of `hinge` with margin 1."""
    margin: float = 1.0
    representations: Literal["encoder", "projected", "post_residual"] = "encoder"
    """The representations of the bi-encoder that the student learns: `encoder`, its output for every token (eq. 5);
    `projected`, ColBERT's projected tokens; `post_residual`, TwinBERT's single vector after the residual. The released
    code uses the last two, each for its bi-encoder.
    """
    hard_weight: float = 1.0
    cls_weight: float = 1.0
    representation_weight: float = 1.0

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
            return mean_of([token_loss(own.hidden, other.hidden, own.offsets) for own, other in sides])
        if any(side.projected_from is None for both in sides for side in both):
            raise ValueError("projected needs ColBERT's ranker in student and teacher")
        return mean_of([token_loss(own.tokens, other.tokens, own.offsets) for own, other in sides])
