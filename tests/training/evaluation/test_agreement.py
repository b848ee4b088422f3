from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_training.evaluation.agreement import Agreement, agreement

rows = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=7)


@given(rows=rows)
def test_agreement_is_the_mean_over_every_pair_of_tie_breaks(rows: list[tuple[int, int, int]]) -> None:
    """Closed form against every choice of a top candidate by head and by teacher."""
    labels, head, teacher = (np.array(column) for column in zip(*rows, strict=True))
    heads, teachers = np.flatnonzero(head == head.min()), np.flatnonzero(teacher == teacher.min())
    choices = list(product(heads, teachers))
    got = agreement(labels, head, teacher)
    assert got.correct == pytest.approx(np.mean([labels[a] for a, _ in choices]))
    assert got.shared == pytest.approx(np.mean([labels[a] and a == b for a, b in choices]))


def test_the_share_is_of_the_heads_correct_ones() -> None:
    """The definition in words, on three questions: two right, one of them shared; a shared wrong one counts nowhere."""
    right_alone = agreement(np.array([1, 1]), np.array([0, 1]), np.array([1, 0]))
    right_shared = agreement(np.array([1, 0]), np.array([0, 1]), np.array([0, 1]))
    wrong_shared = agreement(np.array([0, 1]), np.array([0, 1]), np.array([0, 1]))
    assert (right_alone + right_shared + wrong_shared).share == 0.5
    assert wrong_shared.share is None
    assert Agreement() + right_shared == right_shared
