"""nanotoken gives exactly the ids of Hugging Face's tokenizer, or is not used."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import bert_tokenizer, roberta_tokenizer
from tokenizers import Tokenizer

from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.tokens import Tokens, without_limits
from cerberank_models.word_pieces import CHECKED, WordPieces, word_pieces

MOST = 64


def bundled() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(default_checkpoint() / "tokenizer.json"))
    without_limits(tokenizer)
    return tokenizer


TOKENIZER = bundled()
PIECES = st.sampled_from(["[CLS]", "[SEP]", "##s", " ", "\t", "a", "É", "\u0301", "\x0b", "\u200d", "日", "1", "."])
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.lists(PIECES).map("".join), max_size=8)


@pytest.fixture(scope="module")
def fast() -> WordPieces:
    return WordPieces(TOKENIZER)


@given(texts=TEXTS)
def test_ids_are_hugging_face_s(fast: WordPieces, texts: list[str]) -> None:
    """Any text, special tokens in any context, and no more ids than asked for."""
    expected = [each.ids[:MOST] for each in TOKENIZER.encode_batch_fast(texts, add_special_tokens=False)]
    assert [np.frombuffer(ids, np.int32).tolist() for ids in fast(texts, MOST)] == expected


def test_a_copy_of_another_process_gives_the_same(fast: WordPieces) -> None:
    """Processes that prepare batches get a copy."""
    assert pickle.loads(pickle.dumps(fast))(CHECKED, MOST) == fast(CHECKED, MOST)


def test_other_tokenizers_and_other_ids_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte-level tokenizers, a machine without the package, and a package whose ids differ: no text is lost."""
    expected = Tokens(roberta_tokenizer(), most=MOST, characters=1000, digest=None)(CHECKED, None, "")
    assert word_pieces(roberta_tokenizer()) is None
    assert len(expected) == len(CHECKED)
    monkeypatch.setitem(sys.modules, "nanotoken", None)
    assert word_pieces(bert_tokenizer()) is None
    without = Tokens(TOKENIZER, most=MOST, characters=1000, digest=None)(CHECKED, None, "")

    def other(texts: object, **_: object) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(CHECKED), np.uint32), np.arange(len(CHECKED) + 1)

    pieces = SimpleNamespace(from_json=lambda _: SimpleNamespace(encode_batch=other))
    package = SimpleNamespace(set_cache_entries=lambda _: None, WordPieceTokenizer=pieces)
    monkeypatch.setitem(sys.modules, "nanotoken", package)
    assert word_pieces(TOKENIZER) is None
    assert Tokens(TOKENIZER, most=MOST, characters=1000, digest=None)(CHECKED, None, "") == without
