"""Questions among few and among many candidates."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_models.encoding import Candidate
from cerberank_training.data import DataError, LabelledCandidate, Question
from cerberank_training.data.deep_questions import Documents, deep_questions


def question(number: int, document: str, texts: Sequence[str], *, text: str = "", answer: str = "") -> Question:
    """The first candidate is the positive."""
    return Question(
        id=str(number),
        text=text or f"question {number}?",
        title=document,
        answers=(answer,),
        candidates=tuple(LabelledCandidate(Candidate(text=each), int(not row)) for row, each in enumerate(texts)),
    )


def documents(count: int, size: int) -> list[Question]:
    """Two questions of each document, which share its candidates."""
    return [
        question(
            2 * number + each, f"document {number}", [f"text {number}-{(row + each) % size}" for row in range(size)]
        )
        for number in range(count)
        for each in range(2)
    ]


@given(
    size=st.integers(2, 12),
    depths=st.lists(st.integers(1, 40), min_size=1, max_size=5, unique=True),
    seed=st.integers(0, 3),
)
def test_a_depth_has_its_size_and_contains_the_lesser_ones(size: int, depths: list[int], seed: int) -> None:
    """All positives, the own candidates before others, which are of other documents; the same from the same seed."""
    data = documents(4, size)
    own = {row.candidate.text for row in data[0].candidates}
    deep = Documents(data).deepen(data[0], depths, seed)
    reachable = [depth for depth in sorted(depths) if 1 < depth <= 4 * size]
    assert (deep.depths if deep else ()) == tuple(reachable)
    before: set[str] = set()
    for depth in reachable:
        texts = [row.candidate.text for row in deep.at(depth).candidates]
        assert len(set(texts)) == len(texts) == depth
        assert before <= set(texts)
        assert sum(text in own for text in texts) == min(depth, size)
        assert [row.label for row in deep.at(depth).candidates] == [1] + [0] * (depth - 1)
        before = set(texts)
    again = Documents(data).deepen(data[0], depths, seed)
    assert (again and again.question) == (deep and deep.question)


def test_what_may_answer_is_never_added() -> None:
    """Texts of the own document, of documents that the same question is asked of, copies, and the short answer."""
    data = [
        question(0, "rivers", ["The Rhine.", "The Main."], text="Which river?", answer="Rhine"),
        question(1, "rivers", ["The Mosel.", "the  main."]),
        question(2, "more rivers", ["It is the Elbe.", "A ship."], text="which  river?"),
        question(3, "ships", ["the  rhine.", "A Rhinelander.", "The bridge.", "A ferry."]),
    ]
    added = {candidate.text for candidate in Documents(data).elsewhere(data[0], seed=0)}
    assert added == {"The bridge.", "A ferry."}


def test_a_depth_has_no_more_pairs_than_it_may() -> None:
    """Each the first of the same questions; a depth that nobody can have is an error."""
    deep = deep_questions(documents(5, 4), (5, 10, 30), size=None, pairs=25, seed=1)
    assert [each.depths for each in deep] == [(5, 10), (5, 10), (5,), (5,), (5,)]
    with pytest.raises(DataError, match="no question has 30 candidates"):
        deep_questions(documents(5, 4), (30,), size=None, pairs=10**6, seed=1)
