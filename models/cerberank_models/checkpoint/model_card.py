"""Reads and replaces parts of a checkpoint's model card, `README.md`: its title, languages, terms and sections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cerberank_models.language import names_of

RUN = "run.json"
"""The file in a model's folder with the summary of its training run, to which the card links, or its data alone."""
TERMS = "Terms"
UNSTATED = (
    "Licence and terms of the data are not stated. `checkpoint card CHECKPOINT --terms TEXT` states them: do so before "
    "the checkpoint is given away."
)
SENTENCE = re.compile(r"(?m)^This model is for texts in .*\.$")
FILES = (".md", ".txt", ".rst")


def read_terms(terms: str) -> str:
    """The terms that `--terms TEXT|FILE` gives. Raises ValueError for an empty text and for a missing file."""
    path = Path(terms)
    if "\n" not in terms and path.is_file():
        terms = path.read_text(encoding="utf-8")
    elif terms.endswith(FILES) and not re.search(r"\s", terms):
        raise ValueError(f"--terms {terms}: there is no such file")
    if not terms.strip():
        raise ValueError("--terms is empty: give the licence and the terms of the data, or the name of a file")
    return terms.strip()


def with_terms(card: str, terms: str | None) -> str:
    """The card with its section of terms replaced by these terms; None writes that the terms are not stated."""
    return with_section(card, TERMS, terms or UNSTATED)


def with_section(card: str, title: str, body: str) -> str:
    r"""The card with this section, in place of an earlier section with the same title or else at the end.

    >>> with_section("# a\n\n## b\n\nold\n\n## c\n\nd\n", "b", "new")
    '# a\n\n## b\n\nnew\n\n## c\n\nd\n'
    """
    # Headings within the body are lowered, so that they do not begin a new section.
    body = re.sub(r"(?m)^#{1,2} ", "### ", body)
    section = f"## {title}\n\n{body}\n"
    old = _section(card, title)
    if old is None:
        return f"{card.rstrip()}\n\n{section}"
    rest = card[old.end() :]
    return card[: old.start()] + section + (f"\n{rest}" if rest else "")


def without_section(card: str, title: str) -> str:
    r"""The card without the section that has this title.

    >>> without_section("# a\n\n## b\n\nold\n\n## c\n\nd\n", "b")
    '# a\n\n## c\n\nd\n'
    """
    old = _section(card, title)
    return card if old is None else card[: old.start()] + card[old.end() :]


def _section(card: str, title: str) -> re.Match[str] | None:
    return re.search(rf"(?ms)^## {re.escape(title)}\n(.*?)(?=^## |\Z)", card)


def with_title(card: str, old: str, new: str) -> str:
    """The card with the title `new`, if its title is the name `old`; other titles stay."""
    first, separator, rest = card.partition("\n")
    return f"# {new}{separator}{rest}" if first.strip() == f"# {old}" else card


def with_languages(card: str, languages: Sequence[str]) -> str:
    """The card with a sentence below its title that names these languages; unchanged if there are none."""
    if not languages:
        return card
    codes = ", ".join(f"`{code}`" for code in languages)
    sentence = f"This model is for texts in {names_of(languages)} ({codes})."
    if SENTENCE.search(card):
        return SENTENCE.sub(sentence, card, count=1)
    first, _, rest = card.partition("\n")
    if first.startswith("# "):
        return f"{first}\n\n{sentence}\n\n{rest.lstrip()}"
    return f"{card.rstrip()}\n\n{sentence}\n"
