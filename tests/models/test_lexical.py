"""The lexical layer's scores of encoded pairs, against BM25 in plain Python over the words of the texts."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import WORDS, bert_tokenizer
from tokenizers import Tokenizer, models

from cerberank_models.config import EncodingConfig
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.lexical import K1, B, lexical_scores
from cerberank_models.transformer import PromptTemplate
from cerberank_models.windows import Windowing

BERT = bert_tokenizer()
PROMPT = PromptTemplate(
    instruction=("{instruction}",), question="river {question}", tail=("tower ?",), default_instruction="rank", yes="a"
)
words = st.sampled_from([word for word in WORDS if word.isalpha()])
texts = st.lists(words, max_size=8).map(" ".join)


def encoder(**changes: Any) -> PairEncoder:
    encoding = EncodingConfig(**{"max_length": 64, "question_length": 16} | changes)
    return PairEncoder(BERT, family="bert", config=encoding, type_vocab_size=2)


def scores_of(encoder: PairEncoder, question: str, *candidates: str, **options: Any) -> list[float]:
    pairs = encoder.encode(question, [Candidate(text=text) for text in candidates], **options)
    return lexical_scores(encoder, pairs).tolist()  # type: ignore[no-any-return]


def bm25(question: str, candidates: list[str]) -> list[float]:
    """BM25 as its books have it, with a candidate's separator in its length, and nothing for what all hold."""
    stems = [Counter(word[:5] for word in text.split()) for text in candidates]
    lengths = [1 + len(text.split()) for text in candidates]
    mean, count = sum(lengths) / len(lengths), len(candidates)
    scores = [0.0] * count
    for word in {word[:5] for word in question.split()}:
        holding = sum(word in each for each in stems)
        rarity = math.log((count + 0.5) / (holding + 0.5))
        for place, (each, length) in enumerate(zip(stems, lengths, strict=True)):
            norm = K1 * (1 - B + B * length / mean)
            scores[place] += rarity * each[word] * (K1 + 1) / (each[word] + norm)
    return scores


@given(question=texts, candidates=st.lists(texts, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_scores_are_bm25_over_the_question_s_candidates(question: str, candidates: list[str]) -> None:
    """It is 0 for a candidate without a word of the question, and does not depend on the order of words."""
    scores = scores_of(encoder(), question, *candidates)
    assert scores == pytest.approx(bm25(question, candidates))
    shared = [bool(set(question.split()) & set(text.split())) for text in candidates]
    assert all(score == 0.0 for score, any_shared in zip(scores, shared, strict=True) if not any_shared)
    turned = [" ".join(reversed(text.split())) for text in candidates]
    assert scores_of(encoder(), " ".join(reversed(question.split())), *turned) == scores


def test_words_that_begin_alike_are_the_same_word() -> None:
    """Case and the marks of words count for nothing. Pieces of other characters are bytes, and stay as they are."""
    pieces = [
        "[CLS]",
        "[SEP]",
        "tower",
        "\u0120Towering",
        "\u2581towers",
        "##towers",
        "towel",
        "\u00e4\u00b8\u0143",
        "\u00e4\u00b8\u00ad",
    ]
    tokenizer = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}))
    encoding = EncodingConfig(max_length=64, question_length=16)
    stems = PairEncoder(tokenizer, family="bert", config=encoding, type_vocab_size=2).stems.tolist()
    assert stems[2] == stems[3] == stems[4]
    assert len({stems[2], *stems[5:]}) == 5


def test_a_long_candidate_has_the_score_of_its_windows() -> None:
    """The best or the mean of them. Cut to its beginning, it shares no word."""
    long = "paris " * 100 + "tower"
    best, mean, cut = (
        scores_of(encoder(), "tower", long, "river", windowing=windowing)
        for windowing in (Windowing(combine="best"), Windowing(combine="mean"), None)
    )
    assert best[0] > mean[0] > 0.0
    assert cut == [0.0, 0.0]


def test_the_words_of_a_prompt_count_for_nothing() -> None:
    """They stand around every question and candidate."""
    decoder = encoder(prompt=PROMPT)
    assert scores_of(decoder, "opera", "paris", "bees river", "tower bees") == [0.0, 0.0, 0.0]
    first, second = scores_of(decoder, "opera", "opera", "bees")
    assert first > second == 0.0


def test_unknown_words_are_no_words_in_common() -> None:
    """The vocabulary has one token for all of them."""
    assert scores_of(encoder(), "\u0e01\u0e02", "\u0e03", "tower") == [0.0, 0.0]
