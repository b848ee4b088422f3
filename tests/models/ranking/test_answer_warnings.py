"""The warnings on texts in other languages than the model's."""

from __future__ import annotations

from cerberank_models.encoding import Candidate
from cerberank_models.ranking.answer_warnings import language_warnings

ENGLISH = ("It is 330 metres tall.", "It was built in Paris by the engineer.")
GERMAN = ("Die Rechnung finden Sie in Ihrem Kundenkonto.", "Der Turm ist 112 Meter hoch.", "Er wurde 1889 gebaut.")


def warnings_of(question: str, *texts: str, languages: tuple[str, ...] = ("en",)) -> list[str]:
    """The warnings for a model of these languages."""
    return language_warnings(question, [Candidate(text=text) for text in texts], languages)


def test_the_question_and_most_candidates_are_told_apart() -> None:
    """One sentence where both seem to be the same; a few candidates in another language are none of it."""
    model = "this model is for English: the order means little"
    assert warnings_of("How tall is it?", *ENGLISH, GERMAN[0]) == []
    assert warnings_of("Wie hoch ist der Turm?", *ENGLISH) == [f"the question seems to be German, {model}"]
    assert warnings_of("How tall is it?", *GERMAN) == [f"most candidates seem to be German, {model}"]
    assert warnings_of("Wie hoch ist der Turm?", *GERMAN) == [
        f"the question and most candidates seem to be German, {model}"
    ]
    assert warnings_of("Quelle est la hauteur de la tour ?", *GERMAN) == [
        f"the question seems to be French, {model}",
        f"most candidates seem to be German, {model}",
    ]


def test_a_model_that_states_no_language_warns_of_none() -> None:
    """One that states both is for both."""
    assert warnings_of("Wie hoch ist der Turm?", *GERMAN, languages=()) == []
    assert warnings_of("Wie hoch ist der Turm?", *GERMAN, languages=("de", "en")) == []


def test_many_candidates_are_told_by_some_of_them_all() -> None:
    """Not by the first ones: a German title before 100 English sentences is not a reason to warn."""
    assert warnings_of("How tall is it?", *GERMAN, *ENGLISH * 50) == []
    assert warnings_of("How tall is it?", *ENGLISH, *GERMAN * 50) != []
