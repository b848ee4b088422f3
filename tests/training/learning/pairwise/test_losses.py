"""TRMD's losses against loops, and how its two hard losses are related."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cerberank_training.learning.pairwise.losses import hinge_loss, softmax_loss, token_loss, vector_loss

SCORES = st.lists(st.tuples(*[st.floats(-30, 30, width=32)] * 2), min_size=1, max_size=8)


def columns(pairs: list[tuple[float, float]]) -> tuple[torch.Tensor, torch.Tensor]:
    positive, negative = torch.tensor(pairs, dtype=torch.float64).unbind(dim=1)
    return positive, negative


@given(SCORES, st.floats(0, 2))
def test_hinge_is_its_equation(pairs: list[tuple[float, float]], margin: float) -> None:
    """`max(0, margin - p+ + p-)` of the softmax of both scores."""
    wanted = []
    for positive, negative in pairs:
        high = max(positive, negative)
        e_positive, e_negative = math.exp(positive - high), math.exp(negative - high)
        p = e_positive / (e_positive + e_negative)
        wanted.append(max(0.0, margin - p + (1 - p)))
    assert hinge_loss(*columns(pairs), margin).item() == pytest.approx(sum(wanted) / len(wanted), abs=1e-9)


@given(SCORES)
def test_with_margin_1_hinge_is_twice_the_released_loss(pairs: list[tuple[float, float]]) -> None:
    """`1 - p+ + p- = 2 (1 - p+)`, values and gradients; the released one is `1 - softmax([s+, s-])[0]`."""
    scores = torch.stack(columns(pairs), dim=1).requires_grad_()
    hinge, released = hinge_loss(scores[:, 0], scores[:, 1], 1.0), softmax_loss(scores[:, 0], scores[:, 1])
    assert hinge.item() == pytest.approx(2 * released.item(), abs=1e-12)
    assert released.item() == pytest.approx((1 - scores.softmax(dim=1)[:, 0]).mean().item(), abs=1e-12)
    gradients = [torch.autograd.grad(loss, scores)[0] for loss in (hinge, released)]
    assert torch.allclose(gradients[0], 2 * gradients[1], atol=1e-12)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 99))
def test_token_loss_is_a_mean_of_means(lengths: list[int], seed: int) -> None:
    """Over dimensions, a text's own tokens, texts; a loop over tokens knows no padding."""
    generator = torch.Generator().manual_seed(seed)
    student, teacher = torch.randn(2, sum(lengths), 3, generator=generator)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    texts = []
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        squares = [
            float((student[token, place] - teacher[token, place]) ** 2)
            for token in range(start, stop)
            for place in range(3)
        ]
        texts.append(sum(squares) / len(squares))
    assert token_loss(student, teacher, offsets).item() == pytest.approx(sum(texts) / len(texts), rel=1e-4)


def test_vectors_are_compared_in_float32() -> None:
    """Half precision's squares would overflow."""
    large = torch.full((1, 1), 300.0, dtype=torch.float16)
    assert vector_loss(large, torch.zeros_like(large)).item() == 90_000.0
