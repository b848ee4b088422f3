from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import albert_tokenizer, bert_tokenizer, roberta_tokenizer

from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import MOST_CHARACTERS, PIECE_CHARACTERS, Tokens, packed, pieces_of

TOKENIZERS = {"albert": albert_tokenizer(), "bert": bert_tokenizer(), "roberta": roberta_tokenizer()}


@pytest.mark.parametrize("family", sorted(TOKENIZERS))
@given(text=st.text(max_size=60) | st.sampled_from(["the tower \U0001f5fc is tall", "cafe\u0301 a", ""]))
@settings(max_examples=40)
def test_spans_are_code_points_of_the_text(family: str, text: str) -> None:
    """The ids are those of a call, and every span is the tokenizer's own, whatever characters stand before it."""
    tokens = Tokens(TOKENIZERS[family], most=1000, characters=1000, digest=None)
    (read,) = tokens.spanned([text], None, "")
    assert packed(read[0].tolist()) == tokens([text], None, "")[0]
    encoding = TOKENIZERS[family].encode(text, add_special_tokens=False)
    assert list(zip(read[1].tolist(), read[2].tolist(), strict=True)) == encoding.offsets
    assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)


def test_spans_are_cached_apart_from_tokens_and_from_other_tenants() -> None:
    """A text's ids without spans must not be taken for ids with spans."""
    tokens, cache = Tokens(TOKENIZERS["bert"], most=3, characters=100, digest="d"), TokenCache(10_000)
    text = "how tall is the tower"
    assert len(tokens([text], cache, "a")[0]) == 4 * 4
    first = tokens.spanned([text], cache, "a")[0]
    assert first.shape == (3, 5)
    hits = cache.counts.hits
    assert (tokens.spanned([text], cache, "a")[0] == first).all()
    assert cache.counts.hits == hits + 1
    tokens.spanned([text], cache, "b")
    assert cache.counts.hits == hits + 1


def test_no_more_than_the_most_characters_are_read() -> None:
    """A body of megabytes does not become one text of a million tokens."""
    tokens = Tokens(TOKENIZERS["bert"], most=3, characters=100, digest=None)
    assert tokens.spanned(["a " * MOST_CHARACTERS], None, "")[0].shape[1] == MOST_CHARACTERS // 2


@given(st.lists(st.integers(0, 3 * PIECE_CHARACTERS), max_size=12))
def test_texts_reach_the_tokenizer_in_pieces_of_bounded_size(lengths: list[int]) -> None:
    """So that other callers' texts get in between: a piece reaches the bound with its last text only."""
    texts = ["a" * length for length in lengths]
    pieces = [list(piece) for piece in pieces_of(texts)]
    assert [text for piece in pieces for text in piece] == texts
    assert all(piece and sum(map(len, piece[:-1])) < PIECE_CHARACTERS for piece in pieces)


def test_pieces_change_no_token() -> None:
    """Each text has its own tokens, whichever piece it is in."""
    tokens = Tokens(TOKENIZERS["bert"], most=1000, characters=1000, digest=None)
    texts = [f"how tall is tower {'a ' * 5 * number}" for number in range(100)]
    assert sum(map(len, texts)) > 2 * PIECE_CHARACTERS
    assert tokens(texts, None, "") == [tokens([text], None, "")[0] for text in texts]
