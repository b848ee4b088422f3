"""The settings of the losses that a training step minimises (`student_losses.py`). Importing them loads no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from cerberank_models.commands.values import RECIPE_KEY, NotNegative, listed
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
    """Losses of one head with several teachers: their sum (kd_sum), one teacher at each step in turn (kd_rr), or the
    mean of their probabilities as one teacher (kd_mean)."""
    alpha: Annotated[tuple[float, ...], listed(float, "0.1 or 0,0.5,1", within=Number(gte=0, lte=1))] = (0.5,)
    """Weight of the labels against the teachers, 0 to 1; or one per head."""
    tau: Annotated[tuple[float, ...], listed(float, "5 or 1,3,5", within=Number(gt=0, lt=math.inf))] = (3.0,)
    """Temperature of the distillation; or one per head, such as 1,3,5."""
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

    def lesson(self, head: int, heads: int, teachers: Sequence[object]) -> tuple[object, ...]:
        """All that determines the loss of one of the `heads` with given logits; the same if they learn the same."""
        pairs = lessons(self.strategy, step=0, heads=heads, teachers=len(teachers))
        taught = [teachers[teacher] for of, teacher in pairs if of == head]
        return (
            of_head(self.weights, head),
            *((taught, of_head(self.alpha, head), of_head(self.tau, head)) if taught else ()),
        )


def of_head(values: tuple[float, ...], head: int) -> float:
    """The value of a head, or the one that all heads have."""
    return values[head if len(values) > 1 else 0]
