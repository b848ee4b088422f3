"""Texts become windows between special tokens, and no token is lost or padded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import WORDS, bert_tokenizer, roberta_tokenizer

from cerberank_models.texts.config import TextEncodingConfig
from cerberank_models.texts.encoding import TextEncoder

CONFIG = TextEncodingConfig(question_length=4, document_length=10, window=4)
TOKENIZER = bert_tokenizer()
ENCODER = TextEncoder(TOKENIZER, family="bert", config=CONFIG)


@given(st.lists(st.lists(st.sampled_from([word for word in WORDS if word.isalpha()]), max_size=14), min_size=1))
def test_windows_hold_the_texts_first_tokens_in_order(words: list[list[str]]) -> None:
    """Up to document_length tokens, at most `window` a window, an empty text one empty window."""
    encoded = ENCODER.documents([" ".join(text) for text in words])
    assert len(encoded.windows) == len(words) + 1
    for text, start, stop in zip(words, encoded.windows[:-1], encoded.windows[1:], strict=True):
        wanted = TOKENIZER.encode(" ".join(text), add_special_tokens=False).ids[:10]
        pieces = [
            encoded.token_ids[encoded.offsets[window] : encoded.offsets[window + 1]].tolist()
            for window in range(start, stop)
        ]
        assert all((piece[0], piece[-1]) == (2, 3) for piece in pieces)
        assert [number for piece in pieces for number in piece[1:-1]] == wanted
        assert [len(piece) - 2 for piece in pieces[:-1]] == [4] * (len(pieces) - 1)
        assert len(pieces) == max(1, -(-len(wanted) // 4))


def test_a_question_is_one_window() -> None:
    """It is cut at question_length; a lone surrogate becomes U+FFFD, which BERT drops."""
    encoded = ENCODER.questions(["how tall is the tower", "a \ud800"])
    assert encoded.windows.tolist() == [0, 1, 2]
    assert encoded.offsets.tolist() == [0, 6, 9]


def test_a_tokenizer_of_another_family_is_refused() -> None:
    """RoBERTa's has no [CLS]."""
    with pytest.raises(ValueError, match=r"lacks \[CLS\]"):
        TextEncoder(roberta_tokenizer(), family="bert", config=CONFIG)
