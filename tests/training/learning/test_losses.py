"""Losses: the hand-computed examples of their docstrings, and what they are means and sums of."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cerberank_training.learning.losses import (
    distillation_loss,
    listwise_loss,
    margin_loss,
    pointwise_loss,
    ranking_loss,
)

LOGITS = st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=6)


def test_losses_are_means_over_examples_for_each_head() -> None:
    """Two equal heads have the same loss; groups of different size count alike."""
    one = torch.tensor([[1.0], [-1.0], [0.5], [0.0], [2.0]])
    labels, offsets = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0]), torch.tensor([0, 2, 5])
    for loss in (lambda x: pointwise_loss(x, labels), lambda x: listwise_loss(x, labels, offsets)):
        assert loss(one.expand(5, 2)).tolist() == pytest.approx(2 * loss(one).tolist())
    groups = [one[:2, 0].log_softmax(0)[0], one[2:, 0].log_softmax(0)[0]]
    assert listwise_loss(one, labels, offsets).item() == pytest.approx(-sum(groups).item() / 2)


@given(student=LOGITS, tau=st.sampled_from([1.0, 3.0, 5.0]), shift=st.floats(-3, 3))
def test_distillation_is_zero_at_the_teacher_alone(student: list[float], tau: float, shift: float) -> None:
    """A divergence: never negative, zero where student and teacher agree; two-class softmax gives the same."""
    logits = torch.tensor(student, dtype=torch.float64)[:, None]
    assert distillation_loss(logits, logits, tau).item() == pytest.approx(0.0, abs=1e-9)
    teachers = logits + shift
    loss = distillation_loss(logits, teachers, tau).item()
    two = [torch.cat([torch.zeros_like(value), value], dim=1) / tau for value in (teachers, logits)]
    divergence = (two[0].softmax(1) * (two[0].log_softmax(1) - two[1].log_softmax(1))).sum(1).mean().item()
    assert loss >= -1e-12
    assert loss == pytest.approx(tau**2 * divergence, abs=1e-7)


def test_margin_mse_is_the_mean_over_pairs_of_each_question() -> None:
    """Against a loop over positives and negatives; a question without a negative adds nothing."""
    generator = torch.Generator().manual_seed(1)
    logits, teachers = (torch.randn(9, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    labels, offsets = torch.tensor([1.0, 0, 0, 1, 1, 1, 1, 0, 0]).double(), torch.tensor([0, 4, 6, 9])
    expected = torch.zeros(2, dtype=torch.float64)
    for start, stop in ((0, 4), (6, 9)):
        margins = [
            (logits[i] - logits[j] - teachers[i] + teachers[j]) ** 2
            for i in range(start, stop)
            for j in range(start, stop)
            if labels[i] > labels[j]
        ]
        expected += torch.stack(margins).mean(dim=0) / 3
    assert margin_loss(logits, teachers, labels, offsets).tolist() == pytest.approx(expected.tolist())


def test_listwise_distillation_knows_no_shift_of_a_question() -> None:
    """Zero for scores that differ by a constant in each question, above zero else; a mean over questions."""
    logits = torch.tensor([[1.0], [-1.0], [0.5], [0.0], [2.0]], dtype=torch.float64)
    offsets = torch.tensor([0, 2, 5])
    shifted = logits + torch.tensor([[3.0], [3.0], [-1.0], [-1.0], [-1.0]])
    assert ranking_loss(logits, shifted, 3.0, offsets).item() == pytest.approx(0.0, abs=1e-12)
    parts = [ranking_loss(logits[a:b], -logits[a:b], 1.0, torch.tensor([0, b - a])).item() for a, b in ((0, 2), (2, 5))]
    assert min(parts) > 0
    assert ranking_loss(logits, -logits, 1.0, offsets).item() == pytest.approx(sum(parts) / 2)
