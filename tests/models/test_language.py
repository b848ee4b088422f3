"""Texts in another language than a checkpoint's are told, and those in its own are not."""

from __future__ import annotations

import unicodedata

import pytest

from cerberank_models.language import names_of, other_language


@pytest.mark.parametrize(
    ("text", "seems"),
    [
        ("Wer hat die Relativitätstheorie entwickelt?", "German"),
        ("wie setze ich mein passwort zurück", "German"),
        ("Combien de temps faut-il pour obtenir un passeport ?", "French"),
        ("Où est l\u2019entrée du musée ?", "French"),
        ("¿Cuánto cuesta enviar un paquete a Chile?", "Spanish"),
        ("Quanto è alta la torre di Pisa?", "Italian"),
        ("Em que ano começou a Segunda Guerra Mundial?", "Portuguese"),
        ("Hoeveel inwoners heeft Amsterdam?", "Dutch"),
        ("W którym roku wybuchło powstanie warszawskie?", "Polish"),
        ("Şifremi nasıl değiştirebilirim?", "Turkish"),  # noqa: RUF001
        ("Hur många invånare har Göteborg?", "Swedish"),
        ("Почему небо голубое?", "in Cyrillic script"),
        ("لماذا السماء زرقاء؟", "in Arabic script"),
        ("आसमान नीला क्यों होता है?", "in Devanagari script"),
        ("流感有哪些症状？", "Chinese"),  # noqa: RUF001
        ("日本の首都はどこですか？", "Japanese"),  # noqa: RUF001
        ("하늘은 왜 파란가요?", "Korean"),
    ],
)
def test_a_question_in_another_language_is_told(text: str, seems: str) -> None:
    """Also with its accents as characters of their own, as macOS writes them, and never to a model of that language."""
    assert other_language(text, ("en",)) == seems
    assert other_language(unicodedata.normalize("NFD", text), ("en",)) == seems
    own = {"German": "de", "French": "fr", "in Cyrillic script": "uk", "Chinese": "ja", "Korean": "ko"}
    if seems in own:
        assert other_language(text, ("en", own[seems])) is None


@pytest.mark.parametrize(
    "text",
    [
        "How tall is it?",
        "WHO WAS IN DIE HARD",
        "When did Luther write Wir glauben all an einen Gott?",
        "What does 'Praça dos Três Poderes' mean?",
        "How is 北京 pronounced?",
        "Beyoncé",
        "Die Hard",
        "CO2: 12 %, 3 mi/h",
        "42",
        "",
    ],
)
def test_english_with_foreign_names_is_english(text: str) -> None:
    """So are names alone, and texts with nothing to tell a language by."""
    assert other_language(text, ("en",)) is None


def test_english_is_told_to_a_model_of_another_language() -> None:
    """In Latin script words decide: a product's name alone is not another language."""
    for code in ("de", "ru"):
        assert other_language("How tall is the tower and when was it built?", (code,)) == "English"
        assert other_language("iPhone 15 Pro Max", (code,)) is None


@pytest.mark.parametrize("languages", [(), ("fi",), ("en", "fi")])
def test_nothing_is_told_where_a_language_is_not_known(languages: tuple[str, ...]) -> None:
    """Finnish could be taken for anything, so that a model for it has no such warnings."""
    assert other_language("Wer hat die Relativitätstheorie entwickelt?", languages) is None


def test_languages_have_names() -> None:
    """A code stands for what has no name here."""
    assert [names_of(codes) for codes in (("en",), ("en", "de"), ("en", "fi", "fr"))] == [
        "English",
        "English and German",
        "English, fi and French",
    ]
