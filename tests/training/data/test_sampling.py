"""The candidates of a step: every question once per epoch, hard negatives, groups that were sampled beforehand."""

from __future__ import annotations

import pytest
from tests.training.letters import questions, sampler

from cerberank_models.encoding import Candidate
from cerberank_training.data.sampling import NegativeSampling, SampledGroups, Sampler


def test_every_epoch_visits_every_question_once() -> None:
    """Five steps of one question are an epoch, in an order of its own; steps repeat exactly."""
    first = [sampler().step(step, 1)[0].question for step in range(5)]
    second = [sampler().step(step, 1)[0].question for step in range(5, 10)]
    assert sorted(first) == sorted(second) == sorted(question.text for question in questions())
    assert sampler().step(3, 2) == sampler().step(3, 2)


def test_a_group_starts_with_its_positive() -> None:
    """One positive, then the number of negatives asked for."""
    group = sampler().step(0, 1)[0]
    assert group.labels == (1.0, 0.0, 0.0)
    assert group.candidates[0].text.startswith(group.question.split()[2])


def test_hard_negatives_share_rare_words() -> None:
    """Sentences of the article that share words with the question are drawn first."""
    outside = [Candidate(text=text) for text in ("nothing here", "what is b not", "the river b", "word")]
    hard = Sampler(
        questions(),
        NegativeSampling(own=0, hard=1, hard_pool=1, random=0),
        seed=1,
        outside=lambda question: outside if "b" in question.text else [],
    )
    groups = [hard.step(step, 1)[0] for step in range(5)]
    (group,) = [group for group in groups if group.question == "what is b ?"]
    assert group.candidates[1].text == "what is b not"


def test_no_positive_nothing_to_learn() -> None:
    """An unlabelled set is refused before anything is loaded."""
    with pytest.raises(ValueError, match="positive"):
        Sampler([], NegativeSampling(), seed=1)


def test_sampled_groups_come_in_order_and_again() -> None:
    """Groups have all candidates with labels, come in order, and repeat after the last."""
    groups = SampledGroups(questions(3))
    assert [group.question for step in range(2) for group in groups.step(step, 2)] == [
        "what is a ?",
        "what is b ?",
        "what is c ?",
        "what is a ?",
    ]
    assert groups.step(0, 1)[0].labels == (1.0, 0.0, 0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="no question"):
        SampledGroups([])


def test_a_step_does_not_depend_on_the_steps_before() -> None:
    """A resumed run draws the same groups, also across two epochs and in reverse order."""
    once = sampler()
    in_order = [once.step(step, 3) for step in range(6)]
    assert [once.step(step, 3) for step in reversed(range(6))] == in_order[::-1]
    assert [sampler().step(step, 3) for step in range(6)] == in_order
