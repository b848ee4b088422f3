from __future__ import annotations

import numpy as np
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import bert_tokenizer, roberta_tokenizer

from cerberank_models.config import EncodingConfig
from cerberank_models.encoding import Candidate, PairEncoder, concat_pairs, replace_surrogates

TEXTS = st.text(st.characters(codec=None), max_size=60) | st.sampled_from(
    ["", " ", "\n\t", "\x00\x07", "\ud800", "a" * 500]
)
QUESTION = "how tall is the tower ?"


def encoder(family: str = "bert", **changes: int) -> PairEncoder:
    config = EncodingConfig(**({"max_length": 48, "question_length": 16} | changes))
    tokenizer = roberta_tokenizer() if family == "roberta" else bert_tokenizer()
    return PairEncoder(tokenizer, family=family, config=config, type_vocab_size=1 if family == "roberta" else 3)


@pytest.mark.parametrize("text", ["it was built in paris .", "", "  The TOWER, 330 metres!  ", "caf\u00e9 na\u00efve"])
def test_bert_pairs_equal_hugging_face(text: str) -> None:
    """Token and type ids of transformers' fast tokenizer, where nothing is truncated."""
    reference = transformers.BertTokenizer(tokenizer_object=bert_tokenizer(), vocab=bert_tokenizer().get_vocab())
    expected = reference([QUESTION], [text])
    got = encoder().encode(QUESTION, [Candidate(text=text)])
    assert got.token_ids.tolist() == expected["input_ids"][0]
    assert got.type_ids.tolist() == expected["token_type_ids"][0]


@pytest.mark.parametrize("text", ["it was built.", "", "caf\u00e9"])
def test_roberta_pairs_double_the_separator(text: str) -> None:
    """`<s> q </s></s> a </s>` without segment ids, byte for byte."""
    tokenizer = roberta_tokenizer()
    first, separator = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    question, answer = (tokenizer.encode(t, add_special_tokens=False).ids for t in ("who?", text))
    got = encoder("roberta").encode("who?", [Candidate(text=text)])
    assert got.token_ids.tolist() == [first, *question, separator, separator, *answer, separator]
    assert not got.type_ids.any()


def test_context_is_a_third_segment() -> None:
    """Previous and next sentence follow as segment 2; a missing one leaves the segment in place."""
    got = encoder(segments=3).encode("a", [Candidate(text="b", previous="c", next="d"), Candidate(text="b")])
    first, second = (
        got.type_ids[start:stop].tolist() for start, stop in zip(got.offsets, got.offsets[1:], strict=False)
    )
    assert first == [0, 0, 0, 1, 1, 2, 2, 2]
    assert second == [0, 0, 0, 1, 1, 2]


def test_the_candidate_goes_before_its_context() -> None:
    """When the budget is short the context is cut, and that does not count as truncation of the candidate."""
    got = encoder(segments=3).encode("a", [Candidate(text="b " * 40, previous="c " * 40)])
    assert got.tokens == 48
    assert not got.truncated[0]


def test_truncation_is_flagged_for_exactly_the_cut_candidates() -> None:
    """A candidate of exactly the budget is whole, one more token is not."""
    room = 48 - 3 - 1
    got = encoder().encode("a", [Candidate(text="b " * room), Candidate(text="b " * (room + 1))])
    assert got.truncated.tolist() == [False, True]
    assert got.lengths.tolist() == [48, 48]


def test_a_long_question_is_capped_and_flags_every_candidate() -> None:
    """The candidate keeps its room however long the question is."""
    got = encoder().encode("a " * 100, [Candidate(text="b")])
    assert got.lengths.tolist() == [16 + 1 + 3]
    assert got.truncated.tolist() == [True]


def test_a_huge_candidate_is_cut_before_it_is_tokenised() -> None:
    """100 kB give no more than the budget, flagged."""
    got = encoder().encode("a", [Candidate(text="x " * 50_000), Candidate(text="y" * 100_000)])
    assert got.truncated.all()
    assert got.lengths.max() <= 48


@given(question=TEXTS, texts=st.lists(TEXTS, min_size=1, max_size=5), segments=st.sampled_from([2, 3]))
@settings(deadline=None, max_examples=60)
def test_any_text_encodes_within_the_budget(question: str, texts: list[str], segments: int) -> None:
    """Lone surrogates, control characters, blanks: no crash, one row each, never above max_length."""
    got = encoder(segments=segments).encode(question, [Candidate(text=t, previous=t, next=question) for t in texts])
    assert len(got) == len(texts)
    assert got.lengths.max() <= 48
    assert len(got.token_ids) == len(got.type_ids) == got.tokens


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
    """Pairs of surrogates are one character, lone ones are not text."""
    assert replace_surrogates("a\ud83d\ude00b\ud800") == "a\U0001f600b\ufffd"


def test_a_tokenizer_of_another_family_is_refused() -> None:
    """RoBERTa's special tokens are not in BERT's vocabulary."""
    with pytest.raises(ValueError, match="lacks"):
        PairEncoder(bert_tokenizer(), family="roberta", config=EncodingConfig(), type_vocab_size=1)
