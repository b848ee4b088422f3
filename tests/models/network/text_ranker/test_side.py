"""A side's rows can be repeated and reordered, with their tokens."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from cerberank_models.network.text_ranker.side import Side


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
