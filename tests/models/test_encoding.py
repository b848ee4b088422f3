from __future__ import annotations

import gc
import json
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.tiny import TEXT, albert_tokenizer, bert_tokenizer, roberta_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from cerberank_models.config import EncodingConfig
from cerberank_models.encoding import Candidate, PairEncoder, concat_pairs
from cerberank_models.tokens import largest_token_id, replace_surrogates
from cerberank_models.windows import Windowing

TEXTS = st.text(st.characters(codec=None), max_size=60) | st.sampled_from(
    ["", " ", "\n\t", "\x00\x07", "\ud800", "a" * 500]
)
QUESTION = "how tall is the tower ?"


def encoder(family: str = "bert", **changes: int) -> PairEncoder:
    config = EncodingConfig(**({"max_length": 48, "question_length": 16} | changes))
    tokenizer = roberta_tokenizer() if family == "roberta" else bert_tokenizer()
    return PairEncoder(tokenizer, family=family, config=config, type_vocab_size=1 if family == "roberta" else 3)


@cache
def hugging_face_tokenizer(family: str) -> Any:
    """The tokenizer of transformers, post-processor included: unigrams, WordPiece, or byte-level BPE, merges learnt."""
    if family == "albert":
        unigrams = json.loads(albert_tokenizer().to_str())["model"]["vocab"]
        return transformers.AlbertTokenizer(vocab=[tuple(unigram) for unigram in unigrams])
    if family == "bert":
        return transformers.BertTokenizer(vocab=bert_tokenizer().get_vocab())
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    learnt = json.loads(tokenizer.to_str())["model"]
    return transformers.RobertaTokenizer(vocab=learnt["vocab"], merges=[tuple(pair) for pair in learnt["merges"]])


@pytest.mark.parametrize("family", ["albert", "bert", "roberta"])
@given(
    question=st.text(max_size=40),
    texts=st.lists(st.text(max_size=60) | st.text(TEXT, max_size=60), min_size=1, max_size=4),
)
@example(question=QUESTION, texts=["it was built in paris .", "", "  The TOWER, 330 metres!  ", "caf\u00e9 na\u00efve"])
@settings(max_examples=60)
def test_pairs_equal_hugging_face(family: str, question: str, texts: list[str]) -> None:
    """Token and type ids of transformers' fast tokenizer for any text, where nothing is truncated."""
    reference = hugging_face_tokenizer(family)
    expected = reference([question] * len(texts), texts, return_token_type_ids=True)
    pairs = PairEncoder(
        Tokenizer.from_str(reference.backend_tokenizer.to_str()),
        family=family,  # type: ignore[arg-type]
        config=EncodingConfig(max_length=2048, question_length=1024),
        type_vocab_size=1 if family == "roberta" else 2,
    ).encode(question, [Candidate(text=text) for text in texts])
    assert not pairs.truncated.any()
    for row in range(len(texts)):
        span = slice(pairs.offsets[row], pairs.offsets[row + 1])
        assert pairs.token_ids[span].tolist() == expected["input_ids"][row]
        assert pairs.type_ids[span].tolist() == expected["token_type_ids"][row]


def test_context_is_a_third_segment() -> None:
    """Previous and next sentence follow as segment 2; a missing one leaves the segment in place."""
    got = encoder(segments=3).encode("a", [Candidate(text="b", previous="c", next="d"), Candidate(text="b")])
    first, second = (
        got.type_ids[start:stop].tolist() for start, stop in zip(got.offsets, got.offsets[1:], strict=False)
    )
    assert first == [0, 0, 0, 1, 1, 2, 2, 2]
    assert second == [0, 0, 0, 1, 1, 2]


def test_the_candidate_goes_before_its_context() -> None:
    """If the budget is short, the context is cut first, which does not count as truncation of the candidate."""
    got = encoder(segments=3).encode("a", [Candidate(text="b " * 40, previous="c " * 40)])
    assert got.tokens == 48
    assert not got.truncated[0]


def test_a_long_question_is_capped_and_flagged() -> None:
    """The candidate keeps its part of the budget however long the question is."""
    for windowing in (None, Windowing()):
        got = encoder().encode("a " * 100, [Candidate(text="b"), Candidate(text="b " * 100)], windowing=windowing)
        assert got.lengths[0] == 16 + 1 + 3
        assert got.question_truncated
        assert got.truncated_candidates.tolist() == [False, windowing is None]


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.integers(1, 20))
def test_texts_of_mostly_unknown_tokens_are_flagged(known: int, strange: int, odd: int, usual: int) -> None:
    """More than half of a text's own tokens, of the question's as well; in windows in all of them."""
    question = "\u0e01 " * odd + "a " * usual
    texts = ["a " * known + "\u0e01 " * strange, "\u0e01 " * 200, "a " * 200]
    for windowing in (None, Windowing()):
        candidates = [Candidate(text=text) for text in texts]
        got = encoder("bert", question_length=40, max_length=90).encode(question, candidates, windowing=windowing)
        assert got.unknown_candidates.tolist() == [strange > known, True, False]
        assert got.question_unknown == (odd > usual)
    assert not encoder("roberta").encode(question, candidates).unknown_candidates.any()


def test_a_huge_candidate_is_cut_before_it_is_tokenised() -> None:
    """100 kB of text give no more tokens than the budget, and are flagged as truncated."""
    got = encoder().encode("a", [Candidate(text="x " * 50_000), Candidate(text="y" * 100_000)])
    assert got.truncated.all()
    assert got.lengths.max() <= 48


@given(texts=st.lists(TEXTS, min_size=1, max_size=6), data=st.data())
@settings(deadline=None, max_examples=40)
def test_a_candidate_encodes_the_same_alone_and_among_others(texts: list[str], data: st.DataObject) -> None:
    """Select undoes the batch: row i equals the encoding of candidate i alone; concat puts them back."""
    whole = encoder().encode(QUESTION, [Candidate(text=text) for text in texts])
    row = data.draw(st.integers(0, len(texts) - 1))
    alone = encoder().encode(QUESTION, [Candidate(text=texts[row])])
    assert whole.select(np.array([row])).token_ids.tolist() == alone.token_ids.tolist()
    again = concat_pairs([whole.select(np.array([index])) for index in range(len(texts))])
    assert again.token_ids.tolist() == whole.token_ids.tolist()
    assert again.offsets.tolist() == whole.offsets.tolist()


def test_lone_surrogates_become_replacement_characters() -> None:
    """Lone surrogates become U+FFFD; a surrogate pair is one character and stays."""
    assert replace_surrogates("a\ud83d\ude00b\ud800") == "a\U0001f600b\ufffd"


@given(text=st.text(st.characters(codec=None)))
def test_surrogates_are_all_that_is_replaced(text: str) -> None:
    """The result is valid UTF-8, and text that already is stays as it is."""
    replaced = replace_surrogates(text)
    replaced.encode()
    assert replace_surrogates(replaced) == replaced
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert replaced == text


def test_a_tokenizer_of_another_family_is_refused() -> None:
    """RoBERTa's special tokens are not in BERT's vocabulary."""
    with pytest.raises(ValueError, match="lacks"):
        PairEncoder(bert_tokenizer(), family="roberta", config=EncodingConfig(), type_vocab_size=1)


def test_threads_share_an_encoder() -> None:
    """Encoding changes neither the encoder nor its tokenizer, so threads that encode at once get their own results."""
    texts = [[Candidate(text=f"{TEXT[: 20 + number]} {number}") for number in range(16)] for _ in range(4)]
    shared = encoder()
    alone = [encoder().encode(QUESTION, candidates) for candidates in texts]
    with ThreadPoolExecutor(4) as pool:
        encoded = pool.map(lambda candidates: [shared.encode(QUESTION, candidates) for _ in range(50)], texts)
        for expected, each in zip(alone, encoded, strict=True):
            assert all(np.array_equal(pairs.token_ids, expected.token_ids) for pairs in each)


@given(st.permutations("abcdefgh"), st.integers(0, 8), st.sampled_from([0, 0, 5]))
def test_the_largest_id_is_known_whether_ids_have_gaps_or_not(letters: list[str], place: int, gap: int) -> None:
    """The largest token id is found in vocabularies with and without gaps."""
    tokens = [*letters[:place], "[CLS]", "[SEP]", *letters[place:]]
    vocabulary = {token: number + (gap if number > place else 0) for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[SEP]"))
    tested = PairEncoder(tokenizer, family="bert", config=EncodingConfig(), type_vocab_size=2)
    assert largest_token_id(tested.tokenizer) == max(vocabulary.values())


def test_an_encoder_that_nobody_holds_is_gone_at_once() -> None:
    """An unreferenced encoder, and so its tokenizer of 10 MB, is freed at once, without the garbage collector."""
    gc.disable()
    try:
        again = encoder()
        again.encode(QUESTION, [Candidate(text="330 metres")])
        left = weakref.ref(again)
        del again
        assert left() is None
    finally:
        gc.enable()
