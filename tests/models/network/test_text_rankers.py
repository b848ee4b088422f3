"""Rankers of vectors by hand; `test_text_ranker` compares every shape with its equations."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cerberank_models.network.text_ranker import (
    ColbertRanker,
    DotRanker,
    Side,
)

WIDTH = 6


def side(lengths: list[int], *, seed: int, width: int = WIDTH) -> Side:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(sum(lengths), width, generator=generator)
    return Side(torch.randn(len(lengths), WIDTH, generator=generator), tokens, torch.tensor([0, *lengths]).cumsum(0))


def tokens_of(side: Side, row: int) -> list[Tensor]:
    return [side.tokens[place] for place in range(int(side.offsets[row]), int(side.offsets[row + 1]))]


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
