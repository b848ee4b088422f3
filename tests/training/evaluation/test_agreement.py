from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerberank_training.evaluation.agreement import GROUPS, Agreement, agreement, majority

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


@given(rows=st.lists(st.tuples(*[st.integers(0, 1)], *[st.integers(0, 2)] * 4), min_size=1, max_size=5))
@settings(max_examples=25)
def test_the_majority_is_the_mean_over_every_choice_of_tops(rows: list[tuple[int, ...]]) -> None:
    """Three teachers against every choice of a top candidate by head and teachers."""
    labels, head, *teachers = (np.array(column) for column in zip(*rows, strict=True))
    tops = [np.flatnonzero(ranks == ranks.min()) for ranks in (head, *teachers)]
    choices = [[labels[top] for top in choice] for choice in product(*tops)]
    got = majority(labels, head, teachers)
    for group, counts in (("all", (3,)), ("majority", (2,)), ("minority", (1,)), ("none", (0,))):
        of = [own for own, *others in choices if sum(others) in counts]
        assert got.where(group) == pytest.approx((len(of) / len(choices), sum(of) / len(choices)))


def test_half_of_an_even_number_of_teachers_is_a_minority() -> None:
    """One of two; sums over questions add up."""
    labels, right, wrong = np.array([1, 0]), np.array([0, 1]), np.array([1, 0])
    sums = majority(labels, right, [right, wrong]) + majority(labels, wrong, [right, right])
    assert [sums.where(group) for group in GROUPS] == [(1.0, 0.0), (0.0, 0.0), (1.0, 1.0), (0.0, 0.0)]
