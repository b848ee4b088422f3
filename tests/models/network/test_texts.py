"""Joint sequences are assembled as a pair encoder would write them, and each side finds its tokens in them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.text_rankers import texts, window_ids

from cerberank_models.network.texts import joined

LENGTHS = st.integers(2, 6)


@given(
    st.lists(LENGTHS, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.lists(LENGTHS, min_size=1, max_size=3)), min_size=1, max_size=4),
    st.sampled_from([1, 2]),
)
def test_sequences_and_sides(asked: list[int], said: list[tuple[int, list[int]]], between: int) -> None:
    """For any lengths, windows and owners, against a loop over windows."""
    questions, documents = texts([[length] for length in asked]), texts([windows for _, windows in said], seed=1)
    owners = torch.tensor([owner % len(asked) for owner, _ in said])
    both = joined(questions, documents, owners, between=between, types=2)
    ids, types, firsts, question_ids = [], [], [], []
    for document, owner in enumerate(owners.tolist()):
        question = window_ids(questions, owner).tolist()
        question_ids += question
        for window in range(int(documents.windows[document]), int(documents.windows[document + 1])):
            content = window_ids(documents, window).tolist()[1:]
            firsts.append(len(ids))
            ids += [*question, *[3] * (between - 1), *content]
            types += [0] * (len(question) + between - 1) + [1] * len(content)
    assert both.token_ids.tolist() == ids
    assert both.type_ids.tolist() == types
    assert both.offsets.tolist() == [*firsts, len(ids)]
    assert torch.equal(both.token_ids[both.document_cells], documents.token_ids)
    assert len(both.question_cells) == len(both.question_targets)
    placed = torch.tensor(question_ids)[both.question_targets]
    assert torch.equal(placed.int(), both.token_ids[both.question_cells])
    assert int(both.question_offsets[-1]) == len(question_ids) == len(set(both.question_targets.tolist()))


@pytest.mark.parametrize("types", [1, 2])
def test_an_encoder_with_one_type_gets_type_0(types: int) -> None:
    """RoBERTa's table has one row."""
    both = joined(texts([[3]]), texts([[4]]), torch.tensor([0]), between=1, types=types)
    assert int(both.type_ids.max()) == types - 1
