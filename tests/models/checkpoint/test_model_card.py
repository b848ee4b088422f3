"""The parts of a card that are written after the fact."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerberank_models.checkpoint.model_card import (
    UNSTATED,
    read_terms,
    with_languages,
    with_terms,
    with_title,
)

CARD = "# mini\n\nA ranker.\n\n## Recipe\n\n{}\n"


def test_terms_are_one_section_whatever_is_in_them() -> None:
    """Added at the end, replaced where they stand, before other sections too; headings in them are smaller ones."""
    unstated = with_terms(CARD, None)
    assert unstated.endswith(f"## Terms\n\n{UNSTATED}\n")
    stated = with_terms(unstated, "# Licence\n\nMIT\n\n## Data\n\nCC BY 4.0")
    assert stated == CARD + "\n## Terms\n\n### Licence\n\nMIT\n\n### Data\n\nCC BY 4.0\n"
    tuned = stated + "\n## Drop schedules\n\nnone\n"
    assert with_terms(tuned, "CC0") == CARD + "\n## Terms\n\nCC0\n\n## Drop schedules\n\nnone\n"


def test_terms_are_a_text_or_a_file(tmp_path: Path) -> None:
    """A name that can only be a file's is not taken for the terms; a licence's name with a point is."""
    (tmp_path / "terms.md").write_text("MIT\n")
    assert read_terms(str(tmp_path / "terms.md")) == "MIT"
    assert read_terms("CC-BY-4.0") == "CC-BY-4.0"
    for given, said in ((f"{tmp_path}/term.md", "there is no such file"), (" ", "--terms is empty")):
        with pytest.raises(ValueError, match=said):
            read_terms(given)


def test_a_title_of_ones_own_stays() -> None:
    """Only the old name is replaced."""
    assert with_title(CARD, "mini", "other").startswith("# other\n\nA ranker.")
    assert with_title(CARD, "maxi", "other") == CARD


def test_languages_are_one_sentence_below_the_title() -> None:
    """It is replaced where it stands; a card without a title has it at its end, one of no language as it was."""
    english = with_languages(CARD, ("en",))
    assert english == "# mini\n\nThis model is for texts in English (`en`).\n\nA ranker.\n\n## Recipe\n\n{}\n"
    assert with_languages(english, ("en", "de")) == english.replace("English (`en`)", "English and German (`en`, `de`)")
    assert with_languages("Text.\n", ("fr",)) == "Text.\n\nThis model is for texts in French (`fr`).\n"
    assert with_languages(english, ()) == english
