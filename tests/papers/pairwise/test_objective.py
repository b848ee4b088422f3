"""TRMD's losses against loops, how its two hard losses are related, and the weights that each loss reaches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.text_rankers import COLBERT, JOINT_COLBERT, JOINT_TWIN, MONO, TR_COLBERT, TR_TWIN, TWIN, text_ranker, texts

from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.text_ranker import Reading, TextRanker
from cerberank_models.network.texts import Texts
from cerberank_papers.pairwise.objective import (
    hinge_loss,
    losses_of,
    softmax_loss,
    token_loss,
    vector_loss,
)
from cerberank_papers.pairwise.settings import PairwiseObjective

SCORES = st.lists(st.tuples(*[st.floats(-30, 30, width=32)] * 2), min_size=1, max_size=8)
QUESTIONS, DOCUMENTS, OWNERS = texts([[4], [6]]), texts([[5], [9, 3], [4], [8]], seed=1), torch.tensor([0, 0, 1, 1])
BODY = {"embeddings", "body"}


def read(shape: dict[str, Any], *, seed: int = 0) -> tuple[TextRanker, Reading]:
    ranker = text_ranker(shape, seed=seed)
    return ranker, ranker(QUESTIONS, DOCUMENTS, OWNERS)


def output(ranker: TextRanker, side: Texts) -> torch.Tensor:
    """The encoder's output for all tokens; a question's twice, because each has two documents."""
    hidden = ranker.encode(side.token_ids, torch.zeros_like(side.token_ids), PackedLayout.of(side.offsets))
    return torch.cat([hidden[:4], hidden[:4], hidden[4:], hidden[4:]]) if side is QUESTIONS else hidden


def reached(ranker: TextRanker, loss: torch.Tensor) -> set[str]:
    """The encoder's parts and the modules of rankers with a weight that the loss depends on."""
    names, parameters = zip(*ranker.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    used = [name for name, gradient in zip(names, gradients, strict=True) if gradient is not None]
    return {name.split(".")[0] if name.split(".")[0] in BODY else name.rpartition(".")[0] for name in used}


@pytest.mark.parametrize(
    ("student", "bi", "taught"),
    [
        (TR_TWIN, TWIN, BODY),
        (TR_COLBERT, COLBERT, BODY),
        (JOINT_TWIN, TWIN, BODY),
        (JOINT_COLBERT, COLBERT, BODY),
    ],
    ids=["twin", "colbert", "joint-twin", "joint-colbert"],
)
def test_gradients_reach_what_the_paper_says(student: dict[str, Any], bi: dict[str, Any], taught: set[str]) -> None:
    """CLS: ranker 1 up to its residual. Representations: what makes them. Hard: all. Teachers: nothing."""
    ranker, reading = read(student)
    teachers = [read(MONO, seed=1), read(bi, seed=2)]
    for teacher, _ in teachers:
        teacher.requires_grad_(False)
    mono, bi_reading = (teacher(QUESTIONS, DOCUMENTS, OWNERS) for teacher, _ in teachers)
    losses = losses_of(PairwiseObjective(), reading, mono=mono, bi=bi_reading)
    assert list(losses) == ["hard", "cls", "representations"]
    assert reached(ranker, losses["cls"]) == BODY | {"first_ranker.dense"}
    assert reached(ranker, losses["representations"]) == taught
    own = {name.rpartition(".")[0] for name, _ in ranker.named_parameters() if name.split(".")[0] not in BODY}
    assert reached(ranker, losses["hard"]) == BODY | own
    assert all(parameter.grad is None for teacher, _ in teachers for parameter in teacher.parameters())


def test_the_released_code_teaches_the_vector_after_the_residual() -> None:
    """Gradients reach TwinBERT's residual layer, but not its scores; ColBERT has no such vector."""
    ranker, reading = read(TR_TWIN)
    _, twin = read(TWIN, seed=2)
    objective = PairwiseObjective(representations="post_residual")
    losses = losses_of(objective, reading, mono=None, bi=twin)
    assert reached(ranker, losses["representations"]) == BODY | {"token_ranker.dense"}
    assert reading.residual is not None
    assert twin.residual is not None
    assert torch.equal(losses["representations"], vector_loss(reading.residual, twin.residual))
    with pytest.raises(ValueError, match="needs TwinBERT's ranker"):
        losses_of(objective, read(TR_COLBERT)[1], mono=None, bi=read(COLBERT)[1])


def test_the_released_code_teaches_colberts_projected_tokens() -> None:
    """Gradients reach the projection; TwinBERT has none."""
    ranker, reading = read(TR_COLBERT)
    _, colbert = read(COLBERT, seed=2)
    objective = PairwiseObjective(representations="projected")
    loss = losses_of(objective, reading, mono=None, bi=colbert)["representations"]
    assert reached(ranker, loss) == BODY | {"token_ranker.project"}
    sides = ((reading.question, colbert.question), (reading.document, colbert.document))
    halves = [token_loss(own.tokens, other.tokens, own.offsets) for own, other in sides]
    assert torch.allclose(loss, (halves[0] + halves[1]) / 2)
    with pytest.raises(ValueError, match="needs ColBERT's ranker"):
        losses_of(objective, read(TR_TWIN)[1], mono=None, bi=read(TWIN)[1])


@pytest.mark.parametrize(("student", "bi"), [(TR_TWIN, TWIN), (TR_COLBERT, COLBERT)], ids=["twin", "colbert"])
def test_losses_are_those_of_the_tensors_that_the_paper_names(student: dict[str, Any], bi: dict[str, Any]) -> None:
    """With weights: ranker 1's CLS against monoBERT's first token, the encoder's output (eq. 5) for the question's and
    the document's tokens equally, before ColBERT's projection.
    """
    (own, taught), (_, mono), (other, teacher) = read(student), read(MONO, seed=1), read(bi, seed=2)
    objective = PairwiseObjective(hard_weight=2.0, cls_weight=3.0, representation_weight=5.0)
    losses = losses_of(objective, taught, mono=mono, bi=teacher)
    assert taught.cls is not None
    assert torch.allclose(losses["cls"], 3 * (taught.cls - mono.document.first).square().mean())
    halves = [
        token_loss(output(own, side), output(other, side), offsets)
        for side, offsets in ((QUESTIONS, taught.question.offsets), (DOCUMENTS, taught.document.offsets))
    ]
    assert torch.allclose(losses["representations"], 2.5 * (halves[0] + halves[1]))
    p = torch.stack([taught.scores[0::2], taught.scores[1::2]], dim=1).softmax(dim=1)
    assert torch.allclose(losses["hard"], 2 * (1 - p[:, 0] + p[:, 1]).mean())
    half = losses_of(PairwiseObjective(hard="softmax"), taught, mono=None, bi=None)
    assert list(half) == ["hard"]
    assert torch.allclose(4 * half["hard"], losses["hard"])


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
