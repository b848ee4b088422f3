"""The pairs of a step: questions or pairs that are kept, hard negatives, groups sampled beforehand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.letters import questions, sampler

from cerberank_models.encoding import Candidate
from cerberank_training.data import DataError, LabelledCandidate, Question
from cerberank_training.data.sampling import (
    ExampleOptions,
    Group,
    PairSampler,
    SampledGroups,
    Sampler,
    sampler_for,
)

LABELS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=8).filter(
    lambda labels: any(any(rows) and not all(rows) for rows in labels)
)
"""The labels of the candidates of each question; at least one question has a positive and a negative."""


def labelled(labels: list[list[int]]) -> list[Question]:
    return [
        Question(
            id=str(number),
            text=f"q{number}",
            candidates=tuple(
                LabelledCandidate(Candidate(text=f"c{number}/{row}"), label) for row, label in enumerate(rows)
            ),
        )
        for number, rows in enumerate(labels)
    ]


def expected(labels: list[list[int]], *, unanswered: bool) -> Counter[Group]:
    return Counter(
        Group(question=question.text, candidates=(row.candidate,), labels=(float(row.label > 0),))
        for question in labelled(labels)
        for row in question.candidates
        if unanswered or any(question.labels)
    )


@pytest.mark.parametrize("unanswered", [True, False])
def test_an_epoch_has_every_question_that_is_kept(unanswered: bool) -> None:
    """Once; those without a positive are left out, unless they are wanted."""
    answered, without = questions(3), questions(5)[3]
    without = replace(without, candidates=without.candidates[1:])
    usable = [*answered, without] if unanswered else answered
    drawn = Sampler(
        [without, *answered],
        ExampleOptions(negatives=2, hard_negatives=0, other_negatives=0),
        seed=1,
        unanswered=unanswered,
    )
    assert len(drawn) == len(usable)
    assert sorted(group.question for group in drawn.step(0, len(usable))) == sorted(each.text for each in usable)


def test_hard_negatives_share_rare_words() -> None:
    """Sentences of the article that share words with the question are drawn first."""
    outside = [Candidate(text=text) for text in ("nothing here", "what is b not", "the river b", "word")]
    hard = Sampler(
        questions(),
        ExampleOptions(negatives=0, hard_negatives=1, hard_pool=1, other_negatives=0),
        seed=1,
        outside=lambda question: outside if "b" in question.text else [],
    )
    groups = [hard.step(step, 1)[0] for step in range(5)]
    (group,) = [group for group in groups if group.question == "what is b ?"]
    assert group.candidates[1].text == "what is b not"


def test_positives_alone_teach_no_ranking() -> None:
    """A group of one candidate has a listwise loss of 0, and its best dev MAP is the base's: groups, pairs, and groups
    that were sampled beforehand are refused. One negative in the set is enough, or an article to draw from.
    """
    data = labelled([[1], [1, 1]])
    for refused in (
        lambda: Sampler(data, ExampleOptions(), seed=1),
        lambda: PairSampler(data, ExampleOptions(sampling="pairs"), seed=1),
        lambda: PairSampler([*data, *labelled([[0]])], ExampleOptions(sampling="pairs"), seed=1),
        lambda: SampledGroups("jsonl:g.jsonl", data),
    ):
        with pytest.raises(ValueError, match="no question has a negative candidate"):
            refused()
    for sampling in (ExampleOptions(), ExampleOptions(sampling="pairs")):
        with pytest.raises(DataError, match=r"^jsonl:d\.jsonl: no question has a positive candidate"):
            sampler_for("jsonl:d.jsonl", labelled([[0]]), sampling, seed=1)
    with pytest.raises(ValueError, match=r"^--negatives, --hard-negatives and --other-negatives are 0"):
        Sampler(questions(), ExampleOptions(negatives=0, hard_negatives=0, other_negatives=0), seed=1)
    outside = Sampler(data, ExampleOptions(), seed=1, outside=lambda _: [Candidate(text="other")])
    assert outside.step(0, 1)[0].labels == (1.0, 0.0)
    PairSampler([*data, *labelled([[0]])], ExampleOptions(sampling="pairs", unanswered="keep"), seed=1)


def test_own_candidates_stand_for_an_article_that_is_not_there() -> None:
    """Every number has an effect: no candidate comes twice, and --hard-negatives is of those that share words."""
    data = [
        Question(
            id="q",
            text="where is the red tower",
            candidates=tuple(
                LabelledCandidate(Candidate(text=text), int(text == "there"))
                for text in ("there", "a red tower", "one red house", "water", "fire", "earth")
            ),
        )
    ]
    hard = Sampler(data, ExampleOptions(negatives=0, hard_negatives=1, hard_pool=1, other_negatives=2), seed=1)
    for step in range(20):
        (group,) = hard.step(step, 1)
        texts = [candidate.text for candidate in group.candidates]
        assert texts[:2] == ["there", "a red tower"]
        assert len(set(texts)) == 4
    (group,) = Sampler(data, ExampleOptions(negatives=2, hard_negatives=2, other_negatives=9), seed=1).step(0, 1)
    assert len({candidate.text for candidate in group.candidates}) == len(group.candidates) == 6


def test_sampled_groups_come_in_order_and_again() -> None:
    """Groups have all candidates with labels, come in order, and repeat after the last."""
    groups = SampledGroups("jsonl:g.jsonl", questions(3))
    assert [group.question for step in range(2) for group in groups.step(step, 2)] == [
        "what is a ?",
        "what is b ?",
        "what is c ?",
        "what is a ?",
    ]
    assert groups.step(0, 1)[0].labels == (1.0, 0.0, 0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match=r"^jsonl:g\.jsonl: no question"):
        SampledGroups("jsonl:g.jsonl", [])


def test_a_step_does_not_depend_on_the_steps_before() -> None:
    """A resumed run draws the same groups, also across two epochs and in reverse order."""
    once = sampler()
    in_order = [once.step(step, 3) for step in range(6)]
    assert [once.step(step, 3) for step in reversed(range(6))] == in_order[::-1]
    assert [sampler().step(step, 3) for step in range(6)] == in_order


@given(labels=LABELS, unanswered=st.booleans())
def test_an_epoch_has_every_pair_of_the_questions_that_are_kept(labels: list[list[int]], unanswered: bool) -> None:
    """Once, with its label."""
    pairs = PairSampler(
        labelled(labels), ExampleOptions(sampling="pairs", unanswered="keep" if unanswered else "drop"), seed=1
    )
    assert Counter(pairs.step(0, len(pairs))) == expected(labels, unanswered=unanswered)
