"""Ranker 1, TwinBERT's and ColBERT's ranker against loops over pairs, tokens and elements (TRMD section 2.1)."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cerberank_models.network.text_ranker import (
    ColbertRanker,
    DotRanker,
    LinearRanker,
    ResidualRanker,
    Side,
    TwinRanker,
)

WIDTH = 6


def side(lengths: list[int], *, seed: int, width: int = WIDTH) -> Side:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(sum(lengths), width, generator=generator)
    return Side(torch.randn(len(lengths), WIDTH, generator=generator), tokens, torch.tensor([0, *lengths]).cumsum(0))


def tokens_of(side: Side, row: int) -> list[Tensor]:
    return [side.tokens[place] for place in range(int(side.offsets[row]), int(side.offsets[row + 1]))]


def residual(ranker: ResidualRanker, question: Tensor, document: Tensor) -> tuple[float, list[float]]:
    x = [max(float(q), float(d)) for q, d in zip(question, document, strict=True)]
    weight, bias = ranker.dense.weight.tolist(), ranker.dense.bias.tolist()
    v = [sum(w * value for w, value in zip(weight[i], x, strict=True)) + bias[i] + x[i] for i in range(WIDTH)]
    score = sum(w * value for w, value in zip(ranker.output.weight[0].tolist(), v, strict=True))
    return score + ranker.output.bias.item(), v


def test_ranker_1_is_its_equation() -> None:
    """`W max(q, d) + b + max(q, d)`, then a linear layer; dropout changes the score alone, and in training alone."""
    torch.manual_seed(0)
    ranker = ResidualRanker(WIDTH, dropout=0.5).eval()
    question, document = torch.randn(3, WIDTH), torch.randn(3, WIDTH)
    scores, vectors = ranker(question, document)
    for row in range(3):
        score, vector = residual(ranker, question[row], document[row])
        assert abs(scores[row].item() - score) < 1e-5
        assert torch.allclose(vectors[row], torch.tensor(vector), atol=1e-5)
    again, same = ranker.train()(question, document)
    assert torch.equal(same, vectors)
    assert not torch.equal(again, scores)


def test_mono_classifies_the_first_token_as_it_is() -> None:
    """No residual: the vector to be distilled is the encoder's."""
    ranker = LinearRanker(WIDTH, dropout=0.0)
    first = torch.randn(2, WIDTH)
    scores, vectors = ranker(first, first)
    assert torch.equal(vectors, first)
    assert torch.allclose(scores, first @ ranker.output.weight[0] + ranker.output.bias)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 7)), min_size=1, max_size=4), st.integers(0, 99))
def test_twin_is_its_equation(lengths: list[tuple[int, int]], seed: int) -> None:
    """The mean over a side's own tokens, for any lengths side by side; one question row serves all documents."""
    torch.manual_seed(seed)
    ranker = TwinRanker(WIDTH, dropout=0.0)
    question, document = side([q for q, _ in lengths], seed=seed), side([d for _, d in lengths], seed=seed + 1)
    scores, vectors = ranker.score(question, document)
    assert vectors is not None
    for row in range(len(lengths)):
        means = [sum(tokens_of(each, row)) / len(tokens_of(each, row)) for each in (question, document)]
        score, vector = residual(ranker, *(torch.as_tensor(mean) for mean in means))
        assert abs(scores[row].item() - score) < 1e-4
        assert torch.allclose(vectors[row], torch.tensor(vector), atol=1e-5)
    first = question.select(torch.zeros(1, dtype=torch.int64))
    expanded = question.select(torch.zeros(len(lengths), dtype=torch.int64))
    assert torch.allclose(ranker.score(first, document)[0], ranker.score(expanded, document)[0], atol=1e-5)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 7)), min_size=1, max_size=4), st.integers(0, 99))
def test_colbert_is_its_equation(lengths: list[tuple[int, int]], seed: int) -> None:
    """Projection, length 1, sum over question tokens of the maximum over the document's own tokens."""
    torch.manual_seed(seed)
    ranker = ColbertRanker(WIDTH, 4)
    raw = [side([pair[index] for pair in lengths], seed=seed + index) for index in (0, 1)]
    question, document = (Side(each.first, ranker(each.tokens), each.offsets) for each in raw)
    scores, vectors = ranker.score(question, document)
    assert vectors is None
    for row in range(len(lengths)):
        asked, said = (
            [projected / projected.norm() for projected in (ranker.project.weight @ t for t in tokens_of(each, row))]
            for each in raw
        )
        total = sum(max((q @ d).item() for d in said) for q in asked)
        assert abs(scores[row].item() - total) < 1e-5
    first = question.select(torch.zeros(1, dtype=torch.int64))
    expanded = question.select(torch.zeros(len(lengths), dtype=torch.int64))
    assert torch.allclose(ranker.score(first, document)[0], ranker.score(expanded, document)[0], atol=1e-5)


def test_dot_is_a_cosine_of_means() -> None:
    """The means are of each side's own tokens, whatever their length."""
    question, document = side([2, 1], seed=1), side([3, 2], seed=2)
    scores, vectors = DotRanker().score(question, document)
    assert vectors is None
    for row in range(2):
        q, d = (sum(tokens_of(each, row)) / len(tokens_of(each, row)) for each in (question, document))
        assert abs(scores[row].item() - (q @ d / q.norm() / d.norm()).item()) < 1e-5


def test_negative_similarities_are_not_raised_to_padding() -> None:
    """With an average or a maximum over zero padding the shorter document would score 0, not -1."""
    question = Side(torch.zeros(2, 2), torch.tensor([[1.0, 0], [1, 0]]), torch.tensor([0, 1, 2]))
    document = Side(torch.zeros(2, 2), torch.tensor([[-1.0, 0], [0, 1], [0, 1]]), torch.tensor([0, 1, 3]))
    assert ColbertRanker(2, 2).score(question, document)[0].tolist() == [-1.0, 0.0]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_selected_rows_have_their_tokens(lengths: list[int], chosen: list[int]) -> None:
    """Against slices of the packed tokens."""
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    side = Side(torch.arange(len(lengths))[:, None].float(), torch.arange(sum(lengths))[:, None].float(), offsets)
    rows = [row % len(lengths) for row in chosen]
    selected = side.select(torch.tensor(rows))
    wanted = [place for row in rows for place in range(int(offsets[row]), int(offsets[row + 1]))]
    assert selected.tokens[:, 0].tolist() == wanted
    assert selected.first[:, 0].tolist() == rows
    assert selected.offsets.tolist() == torch.tensor([0, *(lengths[row] for row in rows)]).cumsum(0).tolist()
