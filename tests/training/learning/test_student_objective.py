"""The losses of heads and exits: each strategy's sum of losses, against its definition."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch

from cerberank_training.learning.batch import Batch
from cerberank_training.learning.losses import (
    distillation_loss,
    margin_loss,
    pointwise_loss,
    ranking_loss,
    squared_loss,
)
from cerberank_training.learning.settings import StudentObjective, TeacherLoss
from cerberank_training.learning.strategies import Choice, strategy_of
from cerberank_training.learning.student_losses import exit_loss, heads_loss

GENERATOR = torch.Generator().manual_seed(0)
LABELS = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0])
TEACHERS = torch.randn(5, 3, generator=GENERATOR)
LOGITS = torch.randn(5, 3, generator=GENERATOR)


def batch(teachers: torch.Tensor = TEACHERS) -> Batch:
    nothing = torch.zeros(0)
    return Batch(nothing, nothing, nothing, LABELS, torch.tensor([0, 3, 5]), teachers)


def kd(head: int, teacher: int, alpha: float, tau: float) -> float:
    """L_KD of one head and teacher, written out."""
    hard = pointwise_loss(LOGITS[:, head : head + 1], LABELS)[0]
    soft = distillation_loss(LOGITS[:, head : head + 1], TEACHERS[:, teacher : teacher + 1], tau)[0]
    return float(alpha * hard + (1 - alpha) * soft)


def test_one_teacher_a_head() -> None:
    """`sum_i lambda_i L_i`, each head with its own alpha, tau and lambda."""
    objective = StudentObjective(alpha=(0.0, 0.1, 0.9), tau=(1.0, 3.0, 5.0), weights=(1.0, 2.0, 0.5))
    expected = kd(0, 0, 0.0, 1.0) + 2 * kd(1, 1, 0.1, 3.0) + 0.5 * kd(2, 2, 0.9, 5.0)
    assert heads_loss(objective, LOGITS, batch(), step=0).item() == pytest.approx(expected, rel=1e-5)


def test_several_teachers_one_head() -> None:
    """KD_Sum adds all teachers' losses; KD_RR takes one a step in turn."""
    one = LOGITS[:, :1]
    parts: dict[str, torch.Tensor] = {}
    total = heads_loss(StudentObjective(strategy="kd_sum"), one, batch(), step=0, parts=parts).item()
    teachers = [f"head_1/teacher_{teacher + 1}" for teacher in range(batch().teachers.shape[1])]
    assert set(parts) == {"head_1", "head_1/labels", *teachers}
    alone = [0.5 * (parts["head_1/labels"] + parts[teacher]).item() for teacher in teachers]
    assert sum(alone) == pytest.approx(parts["head_1"].item(), rel=1e-5)
    assert parts["head_1"].item() == pytest.approx(total, rel=1e-6)
    turns = [heads_loss(StudentObjective(strategy="kd_rr"), one, batch(), step=step).item() for step in range(4)]
    assert total == pytest.approx(sum(kd(0, teacher, 0.5, 3.0) for teacher in range(3)), rel=1e-5)
    assert sum(turns[:3]) == pytest.approx(total, rel=1e-5)
    assert turns[3] == turns[0]


def test_the_mean_of_teachers_is_one_teacher() -> None:
    """The mean of the probabilities .5 and 1 is .75, whose logit is log 3."""
    several = replace(batch(), teachers=torch.tensor([[0.0, 50.0]]).expand(len(LABELS), -1))
    one = replace(batch(), teachers=torch.full((len(LABELS), 1), math.log(3)))
    loss = heads_loss(StudentObjective(strategy="kd_mean"), LOGITS[:, :1], several, step=0)
    assert loss.item() == pytest.approx(heads_loss(StudentObjective(), LOGITS[:, :1], one, step=0).item(), rel=1e-5)


@pytest.mark.parametrize("name", get_args(TeacherLoss))
def test_each_teacher_loss_is_taken_from_its_teacher(name: TeacherLoss) -> None:
    """Heads learn by the loss that is named, with the temperature where it has one; at the teacher's scores it is 0."""
    offsets = batch().questions
    losses = {
        "kl": distillation_loss(LOGITS, TEACHERS, 2.0),
        "mse": squared_loss(LOGITS, TEACHERS),
        "margin-mse": margin_loss(LOGITS, TEACHERS, LABELS, offsets),
        "listwise": ranking_loss(LOGITS, TEACHERS, 2.0, offsets),
    }
    objective = StudentObjective(alpha=(0.0,), tau=(2.0,), teacher_loss=name)
    got = heads_loss(objective, LOGITS, batch(), step=0).item()
    assert got == pytest.approx(losses[name].sum().item(), rel=1e-5)
    assert heads_loss(objective, TEACHERS, batch(), step=0).item() == pytest.approx(0.0, abs=1e-5)


def test_without_teachers_labels_alone() -> None:
    """`hard`: the sum of the heads' cross entropies; the listwise loss comes on top when it has a weight."""
    bare = batch(torch.empty(5, 0))
    assert heads_loss(StudentObjective(), LOGITS, bare, step=0).item() == pytest.approx(
        pointwise_loss(LOGITS, LABELS).sum().item()
    )
    assert heads_loss(StudentObjective(listwise_weight=1.0), LOGITS, bare, step=0) > heads_loss(
        StudentObjective(), LOGITS, bare, step=0
    )


def test_a_head_gets_its_own_gradient_alone() -> None:
    """The teacher of head 2 gives a gradient to the logits of head 2 alone."""
    gradients = []
    for shift in (0.0, 1.0):
        logits = LOGITS.clone().requires_grad_()
        teachers = TEACHERS + torch.tensor([0.0, shift, 0.0])
        heads_loss(StudentObjective(), logits, batch(teachers), step=0).backward()
        gradients.append(logits.grad)
    changed = (gradients[0] != gradients[1]).any(dim=0)
    assert changed.tolist() == [False, True, False]


def test_exits_learn_from_labels_or_heads() -> None:
    """From the heads: the logit of the mean probability, and no gradient into them."""
    exit_logits, heads = LOGITS[:, :1].clone().requires_grad_(), LOGITS.clone().requires_grad_()
    labels = exit_loss(StudentObjective(), exit_logits, batch(), None)
    assert labels.item() == pytest.approx(pointwise_loss(LOGITS[:, :1], LABELS).item())
    objective = StudentObjective(alpha=(0.0,), tau=(1.0,), exits="heads")
    loss = exit_loss(objective, exit_logits, batch(), heads)
    loss.backward()
    target = LOGITS.sigmoid().mean(dim=1, keepdim=True).logit()
    assert loss.item() == pytest.approx(distillation_loss(LOGITS[:, :1], target, 1.0).item(), rel=1e-4)
    assert heads.grad is None
    assert exit_logits.grad is not None


@pytest.mark.parametrize(
    ("choice", "heads", "teachers", "message"),
    [
        (None, 2, 5, "2 head.s. and 5 teacher.s.: give one --teacher for all heads, or one for each"),
        (None, 0, 1, "0 head.s. and 1 teacher"),
        (None, 1, 2, "give --strategy kd_sum, .* kd_rr, .* or kd_mean"),
        ("kd_sum", 1, 1, "--strategy kd_sum is for one head with several teachers"),
        ("kd_rr", 2, 2, "--strategy kd_rr is for one head with several teachers"),
    ],
)
def test_heads_and_teachers_that_fit_no_strategy_are_refused(
    choice: Choice | None, heads: int, teachers: int, message: str
) -> None:
    """The message says what to give."""
    with pytest.raises(ValueError, match=message):
        strategy_of(choice, heads=heads, teachers=teachers)
