from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cerberank_models.encoding import Candidate
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.evaluation.calibration_questions import as_asked


def questions(count: int, labels: tuple[int, ...] = (0, 1, 0, 0, 0, 0, 1, 0)) -> list[Question]:
    texts = ["bees make honey", "the tower is tall", "a tower", "who", "wine", "the tall tower stands", "steel", ""]
    rows = tuple(
        LabelledCandidate(candidate=Candidate(text=text), label=label)
        for text, label in zip(texts, labels, strict=False)
    )
    return [Question(id=str(number), text="how tall is the tower ?", candidates=rows) for number in range(count)]


def answered(rows: tuple[Question, ...]) -> int:
    return sum(any(each.labels) for each in rows)


def test_answers_are_removed_until_a_share_of_the_questions_has_none() -> None:
    """Questions that have none count, and those without a wrong candidate keep their answers."""
    half = as_asked(questions(200), unanswered=0.5, seed=1)
    assert (answered(half.questions), half.removed) == (100, 100)
    assert [each.id for each in half.questions] == [str(number) for number in range(200)]
    some_have_none = [*questions(150), *questions(50, (0, 0))]
    assert as_asked(some_have_none, unanswered=0.5, seed=1).removed == 50
    most_have_none = [*questions(50), *questions(150, (0, 0))]
    assert as_asked(most_have_none, unanswered=0.5, seed=1).removed == 0
    all_right = as_asked(questions(100, (1, 1)), unanswered=0.5, seed=1)
    assert (answered(all_right.questions), all_right.removed) == (100, 0)


def test_a_quarter_of_the_lists_has_one_candidate_and_a_quarter_two_to_five() -> None:
    """Within four standard errors of 1,000 questions."""
    asked = as_asked(questions(1_000), unanswered=0.5, seed=2)
    sizes = Counter(len(each.candidates) for each in asked.questions)
    assert abs(sizes[1] - 250) < 55
    assert abs(sum(sizes[size] for size in (2, 3, 4, 5)) - 250) < 55
    assert sizes[6] + sizes[8] == 1_000 - sum(sizes[size] for size in (1, 2, 3, 4, 5))


def test_short_lists_have_an_answer_and_what_shares_words_with_the_question() -> None:
    """Texts without a shared word come last, and the candidates stay in their order."""
    asked = as_asked(questions(400), unanswered=0.5, seed=3)
    texts = [tuple(row.candidate.text for row in each.candidates) for each in asked.questions]
    alone = {each[0] for each in texts if len(each) == 1}
    assert alone == {"the tower is tall", "steel", "the tall tower stands"}
    pairs = {each for each in texts if len(each) == 2}
    assert pairs == {
        ("a tower", "the tall tower stands"),
        ("the tower is tall", "the tall tower stands"),
        ("the tower is tall", "steel"),
    }
    assert as_asked(questions(400), unanswered=0.5, seed=3) == asked


def test_a_list_has_at_most_fifty_candidates() -> None:
    (question,) = questions(1)
    longer = [replace(question, candidates=question.candidates * 10)] * 100
    asked = as_asked(longer, unanswered=0.5, seed=4).questions
    assert max(len(each.candidates) for each in asked) == 50
