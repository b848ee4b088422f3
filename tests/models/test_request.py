"""Texts without a visible character, and pairs. `tests/e2e/test_python.py` has the other checks of both ways in."""

from __future__ import annotations

from typing import Any
from unicodedata import category

import numpy as np
import pytest

from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.request import checked_pair, is_blank

SHOWN = ("Lo", "So", "Mc")
"""Categories of whole scripts, left out to be fast, and of vowel signs: U+1734 is dropped though visible."""
PLANES = (range(0xD800), range(0xE000, 0x10000), range(0x1F000, 0x20000), range(0xE0000, 0xE0200))
"""The code points of today's scripts, symbols, emoji and tags."""


def test_a_text_without_a_token_is_blank() -> None:
    """A text of one character that the tokenizer of the bundled model drops, other than those that show something."""
    tokenizer = read_checkpoint(BUNDLED).encoder().tokenizer
    characters = [chr(number) for plane in PLANES for number in plane if category(chr(number)) not in SHOWN]
    encodings = tokenizer.encode_batch_fast(characters, add_special_tokens=False)
    dropped = [text for text, encoding in zip(characters, encodings, strict=True) if not encoding.ids]
    assert len(dropped) > 1000
    assert [hex(ord(text)) for text in dropped if not is_blank(text)] == []


@pytest.mark.parametrize("text", ["", " \n", "\u200b", "\ufeff", "\xad", "\u2060", "\0", "\ufffd", "\u0301", "\u202e"])
def test_texts_that_show_nothing_are_blank(text: str) -> None:
    assert is_blank(text)
    assert is_blank(text * 3)


def test_half_an_emoji_is_blank() -> None:
    assert is_blank("\ud83d")


@pytest.mark.parametrize(
    "text", ["?", "\N{GRINNING FACE}", "\u200b.", "\u0e01\u0e34", "\N{HEAVY CHECK MARK}", "_", "\u0378"]
)
def test_texts_that_show_something_are_not(text: str) -> None:
    """The last is not assigned, like new characters in an old Python."""
    assert not is_blank(text)


@pytest.mark.parametrize("pair", ["ab", b"ab", ("a",), ("a", "b", "c"), ("a", None), {"a": 1, "b": 2}, 7])
def test_what_is_not_a_pair_of_texts_is_named(pair: Any) -> None:
    """Two letters are not a question and a text."""
    with pytest.raises(ValueError, match=r"^pairs\[3\]: must be a question and a text$"):
        checked_pair(pair, 3)


def test_a_pair_may_be_a_row_of_numpy() -> None:
    assert checked_pair(np.array(["a", "b"]), 0) == ("a", "b")
