"""Texts are cut, framed, read in windows and cached as promised; no token is lost or padded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.first_stages import first_stage_config
from tests.text_rankers import COLBERT, JOINT_COLBERT, TWIN, text_ranker
from tests.tiny import WORDS, bert_tokenizer

from cerberank_models.encoding import CHARACTERS_PER_TOKEN, EncodedPairs
from cerberank_models.text_config import ColbertTokens, TextEncodingConfig
from cerberank_models.text_encoding import TextEncoder
from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import replace_surrogates

CONFIG = first_stage_config(token_ranker="dot")
TEXTS = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(["", " ", "\ud800", "a" * 800, "b " * 30])


def encoder(digest: str | None = None) -> TextEncoder:
    return TextEncoder(bert_tokenizer(), CONFIG, tokenizer_digest=digest)


def rows(encoded: EncodedPairs) -> list[list[int]]:
    return [ids.tolist() for ids in np.split(encoded.token_ids, encoded.offsets[1:-1])] if len(encoded) else []


@given(st.lists(TEXTS, max_size=6))
def test_candidates_are_framed_and_cut(texts: list[str]) -> None:
    """Every text is `[CLS]`, its first tokens, `[SEP]`, with or without a cache, and says whether it was cut."""
    tested, tokenizer, most = encoder(), bert_tokenizer(), CONFIG.encoding.document_length
    cache = TokenCache(10**6)
    for encoded in (tested.candidates(texts), tested.candidates(texts, cache), tested.candidates(texts, cache)):
        characters = CHARACTERS_PER_TOKEN * most
        whole = [
            tokenizer.encode(replace_surrogates(text[:characters]), add_special_tokens=False).ids for text in texts
        ]
        assert rows(encoded) == [[2, *ids[:most], 3] for ids in whole]
        wanted = [len(ids) > most or len(text) > characters for ids, text in zip(whole, texts, strict=True)]
        assert encoded.truncated.tolist() == wanted
        assert not encoded.type_ids.any()
    assert cache.counts.hits >= len(texts)


def test_colberts_texts_are_marked_and_questions_filled() -> None:
    """`[CLS] [Q] text [SEP] [MASK] ...` of one length for questions, `[CLS] [D]` before each window of a document."""
    tokens = ColbertTokens(question_mark=60, document_mark=61, fill=4, skipped=())
    lengths = TextEncodingConfig(question_length=4, document_length=5, window=3, colbert=tokens)
    config = text_ranker(COLBERT, encoding=lengths).config
    assert "colbert" not in text_ranker(COLBERT).config.encoding.model_dump()
    tested, (a, b) = TextEncoder(bert_tokenizer(), config), (bert_tokenizer().token_to_id(word) for word in "ab")
    questions = tested.questions(["a b", "", "a b a b a"])
    assert rows(questions) == [[2, 60, a, b, 3, 4, 4], [2, 60, 3, 4, 4, 4, 4], [2, 60, a, b, a, b, 3]]
    assert questions.truncated.tolist() == [False, False, True]
    windows, offsets = tested.documents(["a b a b", ""])
    assert rows(windows) == [[2, 61, a, b, a, 3], [2, 61, b, 3], [2, 61, 3]]
    assert offsets.tolist() == [0, 2, 3]
    assert rows(tested.candidates(["a"])) == [[2, 61, a, 3]]
    for shape in (TWIN, JOINT_COLBERT):
        with pytest.raises(ValueError, match=r"encoding\.colbert is of a bi-encoder with token_ranker colbert"):
            text_ranker(shape, encoding=lengths)


def test_a_question_has_its_own_length() -> None:
    """It is cut at question_length, a candidate later, and may be left its last line."""
    text = "a b c d e " * 4
    assert encoder().questions([text]).tokens == CONFIG.encoding.question_length + 2
    assert encoder().candidates([text]).tokens == CONFIG.encoding.document_length + 2
    assert encoder().questions([text]).truncated.tolist() == [True]
    lengths = CONFIG.encoding.model_copy(update={"question_part": "end"})
    ended = TextEncoder(bert_tokenizer(), first_stage_config(token_ranker="dot", encoding=lengths))
    lines = [f"{text}\nhow tall is the tower ?", "how tall is the tower ?"]
    assert rows(ended.questions(lines)) == 2 * rows(encoder().questions(lines[1:]))


@given(st.lists(st.lists(st.sampled_from([word for word in WORDS if word.isalpha()]), max_size=14), min_size=1))
def test_windows_hold_the_texts_first_tokens_in_order(words: list[list[str]]) -> None:
    """Up to document_length tokens, at most `window` a window, an empty text one empty window."""
    lengths = TextEncodingConfig(question_length=4, document_length=10, window=4)
    windowed = TextEncoder(bert_tokenizer(), first_stage_config(token_ranker="dot", encoding=lengths))
    encoded, windows = windowed.documents([" ".join(text) for text in words])
    assert len(windows) == len(words) + 1
    for text, start, stop in zip(words, windows[:-1], windows[1:], strict=True):
        wanted = windowed.tokenizer.encode(" ".join(text), add_special_tokens=False).ids[:10]
        pieces = [
            encoded.token_ids[encoded.offsets[window] : encoded.offsets[window + 1]].tolist()
            for window in range(start, stop)
        ]
        assert all((piece[0], piece[-1]) == (2, 3) for piece in pieces)
        assert [number for piece in pieces for number in piece[1:-1]] == wanted
        assert [len(piece) - 2 for piece in pieces[:-1]] == [4] * (len(pieces) - 1)
        assert len(pieces) == max(1, -(-len(wanted) // 4))
        assert set(encoded.truncated[start:stop].tolist()) == {len(text) > 10}  # every word is one token


def test_cached_tokens_are_shared_by_digest_and_partition() -> None:
    """Equal tokenizer files share tokens, other partitions and encoders without a digest do not."""
    cache = TokenCache(10**6)
    encoder("x").candidates(["tower"], cache, partition="one")
    encoder("x").candidates(["tower"], cache, partition="one")
    assert (cache.counts.hits, cache.counts.misses) == (1, 1)
    encoder("x").candidates(["tower"], cache, partition="two")
    encoder().candidates(["tower"], cache, partition="one")
    assert (cache.counts.hits, cache.counts.misses) == (1, 3)
