"""Groups of several sets: how often each is drawn, and what is added to them."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from cerberank_models.encoding import Candidate
from cerberank_training.data import LabelledCandidate, Question, QuestionTable
from cerberank_training.data.chat_form import chat_form
from cerberank_training.data.distractors import changed, without_answer
from cerberank_training.data.mixture import Additions, Mixture
from cerberank_training.data.sampling import ExampleOptions, Sampler, sampler_for


def table(name: str, count: int, *, answered: bool = True) -> QuestionTable:
    """Questions of one positive and four negatives, whose texts have the name of the set."""
    return QuestionTable.of(
        Question(
            id=str(number),
            text=f"Where in {name} is tower {number + 100}?",
            candidates=tuple(
                LabelledCandidate(
                    Candidate(text=f"{name}: tower {number + 100} is at place {row}."), int(answered and not row)
                )
                for row in range(5)
            ),
        )
        for number in range(count)
    )


def mixture(seed: int = 1, **additions: float) -> Mixture:
    """Sets of 64 and 4 questions, and one of 2 that nothing answers."""
    tables = {"big": table("Big", 64), "small": table("Small", 4), "none": table("None", 2, answered=False)}
    sampling = ExampleOptions(negatives=1, hard_negatives=1, other_negatives=1)
    samplers = {name: sampler_for(name, each, sampling, seed=1, unanswered=True) for name, each in tables.items()}
    return Mixture(samplers, tables, Additions(**additions), seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(("temperature", "shares"), [(1.0, (64, 4, 2)), (0.5, (8, 2, 2**0.5)), (0.0, (1, 1, 1))])
def test_a_set_is_drawn_by_a_power_of_its_size(temperature: float, shares: tuple[float, ...]) -> None:
    """The shares of 3,000 groups lie within four standard deviations; each set's own epochs are whole."""
    drawn = list(mixture(temperature=temperature).groups(3_000))
    counts = Counter(name for name, _ in drawn)
    for name, share in zip(("big", "small", "none"), shares, strict=True):
        expected = share / sum(shares)
        assert abs(counts[name] / 3_000 - expected) < 4 * (expected * (1 - expected) / 3_000) ** 0.5
    small = [group.question for name, group in drawn if name == "small"]
    assert all(len(set(small[start : start + 4])) == 4 for start in range(0, len(small) - 4, 4))
    assert list(mixture(temperature=temperature).groups(50)) == drawn[:50]
    assert list(mixture(seed=2, temperature=temperature).groups(50)) != drawn[:50]


def test_without_additions_the_groups_are_the_samplers() -> None:
    """A group of a question with an answer has its positive first, and one without has negatives alone."""
    for name, group in mixture().groups(200):
        assert group.labels == ((0.0,) * 3 if name == "none" else (1.0, 0.0, 0.0, 0.0))
        assert len({candidate.text for candidate in group.candidates}) == len(group.labels)


def test_negatives_come_from_elsewhere() -> None:
    """Two of every group's negatives are of other sets."""
    names = {"big": "Big:", "small": "Small:", "none": "None:"}
    for name, group in mixture(elsewhere=2).groups(200):
        strange = [candidate.text for candidate in group.candidates if not candidate.text.startswith(names[name])]
        assert len(strange) == 2
        assert strange == [candidate.text for candidate in group.candidates[-2:]]


def test_shares_of_groups_are_changed() -> None:
    """Each addition alone, in its share of 1,000 groups within five standard deviations."""
    base = [group for _, group in mixture().groups(1_000)]
    answered = sum(1.0 in group.labels for group in base) / len(base)
    without = [group for _, group in mixture(without_positive=0.3).groups(1_000)]
    assert abs(sum(1.0 in group.labels for group in without) / 1_000 - 0.7 * answered) < 0.08
    chat = [group for _, group in mixture(chat=0.5).groups(1_000)]
    assert abs(sum(not group.question.startswith("Where in") or "?" not in group.question for group in chat)) > 300
    asking = [group for _, group in mixture(questions_as_candidates=0.5).groups(1_000)]
    assert 300 < sum(any(text.text.startswith("Where in") for text in group.candidates) for group in asking) < 600
    assert all(text.text != group.question for group in asking for text in group.candidates)
    made = [group for _, group in mixture(changed=1.0).groups(200) if 1.0 in group.labels]
    for group in made:
        positive, wrong = group.candidates[0].text, group.candidates[-1].text
        assert group.labels[-1] == 0.0
        assert wrong != positive
        assert wrong.split()[0] in (positive.split()[0], "Big:", "Small:", "None:")


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        # The second half of a number that the question has; the other number stays.
        ("What was built in 1887?", "In 1887 a tower of 300 metres was built.", r"In 18(?!87)\d\d a tower of 300"),
        ("What is new in 3.11?", "Version 3.11 is faster.", r"Version 3.(?!11)\d\d is faster"),
        # A name that the question has, by one of the document's other names.
        ("Where did Ada Lovelace live?", "The home of Ada Lovelace was London.", r"home of Charles Babbage was London"),
        # Nothing shared: a statement of the contrary, where no yes or no is asked for.
        ("What is it like?", "The water is warm.", r"The water is not warm"),
        ("Is the water warm?", "The water is warm.", None),
        ("What's it like?", "The water is warm.", None),
        ("What is it like?", "The water is never warm.", None),
        ("What is it like?", "Warm water.", None),
    ],
)
def test_only_what_the_question_names_is_changed(question: str, text: str, expected: str | None) -> None:
    """Rules apply in this order, whatever the seed; the same seed gives the same text."""
    others = [Candidate(text="It was Charles Babbage who came.")]
    positive = Candidate(text=text, previous="before", next="after")
    for seed in range(20):
        wrong = changed(question, positive, others, random.Random(seed))
        assert wrong == changed(question, positive, others, random.Random(seed))
        if expected is None:
            assert wrong is None
        else:
            assert re.search(expected, wrong.text), wrong.text
            assert (wrong.previous, wrong.next) == ("before", "after")


@pytest.mark.parametrize(
    ("text", "answers", "expected"),
    [
        ("It was built in 1887 by Gustave Eiffel.", ("Eiffel", "Gustave Eiffel"), "It was built in 1887 by ."),
        ("In 1887, and again in 1887.", ("1887",), "In , and again in ."),
        ("It took 1887 days, not 87.", ("87",), "It took 1887 days, not ."),
        ("It was 1887.", ("1888",), None),
        ("It was in the year of our Lord 1887.", ("in the year of our Lord",), None),
        ("It was 1887.", (), None),
        ("It was, in 1887.", ("", "1887", " "), "It was, in ."),
        ("1887!", ("1887",), None),
        ("It was 1887, or the year 1888.", ("1887", "the year 1888"), None),
        ("A Tibetan writes in tibetan.", ("Tibetan",), None),
    ],
)
def test_a_short_answer_is_removed(text: str, answers: tuple[str, ...], expected: str | None) -> None:
    """The longest one that the statement has as whole words, wherever it stands; nothing if another answer is left."""
    rest = without_answer(Candidate(text=text, previous="before"), answers)
    assert rest == (None if expected is None else Candidate(text=expected, previous="before"))


def test_statements_without_the_answer_are_negatives() -> None:
    """They are added to their share of the groups; the other groups stay as they are."""
    rows = (LabelledCandidate(Candidate(text="Built in 1887."), 1), LabelledCandidate(Candidate(text="Iron."), 0))
    one = QuestionTable.of([Question(id="1", text="When?", answers=("1887",), candidates=rows)])
    samplers = {"one": Sampler(one, ExampleOptions(negatives=1, hard_negatives=0, other_negatives=0), seed=1)}
    drawn = [group for _, group in Mixture(samplers, {"one": one}, Additions(removed=0.5), seed=1).groups(400)]
    texts = Counter(tuple(candidate.text for candidate in group.candidates) for group in drawn)
    assert set(texts) == {("Built in 1887.", "Iron."), ("Built in 1887.", "Iron.", "Built in .")}
    assert abs(texts["Built in 1887.", "Iron.", "Built in ."] - 200) < 60
    assert all(group.labels == (1.0, 0.0, 0.0)[: len(group.candidates)] for group in drawn)


def test_a_chat_form_keeps_names_and_numbers() -> None:
    """They may tell answers apart; the forms are many, and the same for the same seed."""
    question = "Which Rhine bridge opened in 1887?"
    forms = [chat_form(question, random.Random(seed)) for seed in range(300)]
    assert len(set(forms)) > 60
    assert forms[:9] == [chat_form(question, random.Random(seed)) for seed in range(9)]
    for form in forms:
        assert {"rhine", "1887"} <= set(re.findall(r"\w+", form.lower())), form


def test_the_only_set_is_its_own_elsewhere() -> None:
    """The group's own texts are not drawn again."""
    one = table("One", 3)
    mixed = Mixture(
        {"one": Sampler(one, ExampleOptions(negatives=4, hard_negatives=0, other_negatives=0), seed=1)},
        {"one": one},
        Additions(elsewhere=3),
        seed=1,
    )
    for _, group in mixed.groups(60):
        texts = [candidate.text for candidate in group.candidates]
        assert texts.count(texts[0]) == 1
