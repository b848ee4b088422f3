"""The assembly of pairs from joined bytes, and the token cache, against a loop over lists that says what is meant."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import TEXT, bert_tokenizer, roberta_tokenizer
from tokenizers import Tokenizer

from cerberank_models.config import EncodingConfig
from cerberank_models.encoding import CHARACTERS_PER_TOKEN, Candidate, EncodedPairs, PairEncoder
from cerberank_models.question_tokens import FEWEST, LINES, tail
from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import MOST_CHARACTERS, replace_surrogates
from cerberank_models.transformer import PAIR_TEMPLATES, Family

FAMILIES: dict[Family, int] = {"bert": 2, "electra": 3, "roberta": 1}
"""Each family with a size of its table of segments; 2 makes the context share the candidate's."""
TEXTS = (
    st.text(st.characters(codec=None), max_size=60)
    | st.text(TEXT, max_size=60)
    | st.integers(0, 50).map(lambda count: "b " * count)
    | st.sampled_from(["", " ", "\ud800", "a" * 500, "b " * 130, "b " * 1000])
    | st.lists(st.text(TEXT, max_size=30), min_size=2, max_size=12).map("\n".join)
)
CANDIDATES = st.lists(st.builds(Candidate, text=TEXTS, previous=TEXTS, next=TEXTS), max_size=6)


@cache
def tokenizer(family: Family) -> Tokenizer:
    return roberta_tokenizer() if family == "roberta" else bert_tokenizer()


def encoder(family: Family, config: EncodingConfig, *, digest: str = "the same file") -> PairEncoder:
    return PairEncoder(
        tokenizer(family), family=family, config=config, type_vocab_size=FAMILIES[family], tokenizer_digest=digest
    )


def assembled(family: Family, config: EncodingConfig, question: str, candidates: list[Candidate]) -> EncodedPairs:
    """The pairs, one token after the other."""
    characters = min(MOST_CHARACTERS, CHARACTERS_PER_TOKEN * config.max_length)
    template, own_tokenizer = PAIR_TEMPLATES[family], tokenizer(family)
    head, separator = own_tokenizer.token_to_id(template.first), own_tokenizer.token_to_id(template.separator)
    budget = config.max_length - 2 - template.between * (config.segments - 1)

    def ids(text: str) -> list[int]:
        return own_tokenizer.encode(replace_surrogates(text[:characters]), add_special_tokens=False).ids

    question_ids, unread = ids(question), len(question) > characters
    if config.truncation == "last_first" and (unread or len(question_ids) > config.question_length):
        question_ids, unread = end_of(tail(question, characters), ids)[-config.question_length :], True
    token_ids: list[int] = []
    type_ids: list[int] = []
    offsets, truncated = [0], []
    for each in candidates:
        segments = [question_ids, ids(each.text)]
        if config.segments == 3:
            segments.append(ids(" ".join(part for part in (each.previous, each.next) if part)))
        lengths_left = cut([len(segment) for segment in segments], config, budget)
        unread = unread or lengths_left[0] < len(segments[0])
        truncated.append(len(each.text) > characters or lengths_left[1] < len(segments[1]))
        segments = [segment[:most] for segment, most in zip(segments, lengths_left, strict=True)]
        for index, segment in enumerate(segments):
            before = [head] if index == 0 else [separator] * (template.between - 1)
            token_ids += [*before, *segment, separator]
            type_ids += [min(index, FAMILIES[family] - 1)] * (len(before) + len(segment) + 1)
        offsets.append(len(token_ids))
    return EncodedPairs(
        token_ids=np.asarray(token_ids, dtype=np.int32),
        type_ids=np.asarray(type_ids, dtype=np.int32),
        offsets=np.asarray(offsets, dtype=np.int64),
        truncated=np.asarray(truncated, dtype=np.bool_),
        question_truncated=unread and bool(candidates),
    )


def end_of(question: str, ids: Callable[[str], list[int]]) -> list[int]:
    """The tokens of the last line of a question, and of those before it as long as there are fewer than FEWEST."""
    lines = [line for line in question.splitlines() if line.strip()][-LINES:]
    taken: list[str] = []
    while lines and sum(len(ids(line)) for line in taken) < FEWEST:
        taken.insert(0, lines.pop())
    return ids("\n".join(taken))


def cut(lengths: list[int], config: EncodingConfig, budget: int) -> list[int]:
    """The rest of each segment after one token after the other was taken away."""
    lengths_left = lengths = [min(length, budget + 1) for length in lengths]  # no more is read of a text
    if config.truncation == "longest_first":
        lengths_left = list(lengths)
        while sum(lengths_left) > budget:
            longest = [index for index, length in enumerate(lengths_left) if length == max(lengths_left)]
            lengths_left[min(longest, key=lambda index: lengths[index])] -= 1
        return lengths_left
    for index in reversed(range(len(lengths_left))):
        while lengths_left[index] and sum(lengths_left) > budget:
            lengths_left[index] -= 1
    return lengths_left


def assert_equal(got: EncodedPairs, expected: EncodedPairs) -> None:
    assert got.question_truncated == expected.question_truncated
    for name in ("token_ids", "type_ids", "offsets", "truncated"):
        values, wanted = getattr(got, name), getattr(expected, name)
        assert values.dtype == wanted.dtype, name
        assert values.flags.writeable, name
        np.testing.assert_array_equal(values, wanted, err_msg=name)


@pytest.mark.parametrize("segments", [2, 3])
@pytest.mark.parametrize("family", FAMILIES)
@given(drawn=st.tuples(TEXTS, CANDIDATES), length=st.integers(8, 64), data=st.data())
@settings(deadline=None, max_examples=80)
def test_pairs_equal_the_loop(
    family: Family,
    segments: int,
    drawn: tuple[str, list[Candidate]],
    length: int,
    data: st.DataObject,
) -> None:
    """Tokens, types, offsets and flags are the loop's for any texts and lengths, also of texts that are cut."""
    most = data.draw(st.integers(1, length - 7))
    truncation = data.draw(st.sampled_from(["last_first", "longest_first"]))
    shape = {"max_length": length, "question_length": most, "segments": segments, "truncation": truncation}
    config = EncodingConfig.model_validate(shape)
    question, candidates = drawn
    got = encoder(family, config).encode(question, candidates)
    assert_equal(got, assembled(family, config, question, candidates))


@given(question=TEXTS, candidates=CANDIDATES, length=st.integers(8, 64) | st.just(128))
@settings(deadline=None, max_examples=80)
def test_longest_first_is_what_tokenizers_do(question: str, candidates: list[Candidate], length: int) -> None:
    """Pairs without context: ids and types of the tokenizer's own `longest_first`.

    But for the odd token of pairs whose texts are both longer than the whole pair: no more of them is counted.
    """
    config = EncodingConfig(max_length=length, question_length=1, truncation="longest_first")
    encoder = PairEncoder(bert_tokenizer(), family="bert", config=config, type_vocab_size=2)
    own = bert_tokenizer()
    own.enable_truncation(length, strategy="longest_first")
    pairs = encoder.encode(question, candidates)
    for row, each in enumerate(candidates):
        expected = own.encode(replace_surrogates(question), replace_surrogates(each.text))
        place = slice(pairs.offsets[row], pairs.offsets[row + 1])
        ids, types = pairs.token_ids[place].tolist(), pairs.type_ids[place].tolist()
        if all(len(text) > length - 3 for text in (question, each.text)):
            assert len(ids) == len(expected.ids)
            assert abs(types.count(0) - expected.type_ids.count(0)) <= (length - 3) % 2
            continue
        assert ids == expected.ids
        assert types == expected.type_ids


@pytest.mark.parametrize("segments", [2, 3])
@given(questions=st.lists(st.tuples(TEXTS, CANDIDATES), min_size=2, max_size=3), most=st.sampled_from([0, 2000, 10**6]))
@settings(deadline=None, max_examples=25)
def test_cached_tokens_make_the_same_pairs(
    segments: int, questions: list[tuple[str, list[Candidate]]], most: int
) -> None:
    """Whatever other questions and budgets left in the cache, and however much of it was evicted."""
    shared = TokenCache(most)
    for length in (48, 16, 48):
        config = EncodingConfig.model_validate({"max_length": length, "question_length": 8, "segments": segments})
        for question, candidates in [*questions, questions[0]]:
            for words in (question, "b " * 9):
                got = encoder("bert", config).encode(words, candidates, shared)
                assert_equal(got, assembled("bert", config, words, candidates))


def test_a_repeated_text_is_not_tokenised_again() -> None:
    """Neither candidate, question nor context, whichever encoder of the same file and encoding saw it first."""
    config, shared = EncodingConfig(max_length=48, question_length=16, segments=3), TokenCache(10**6)
    candidates = [Candidate(text="a", previous="b", next="c"), Candidate(text="d")]
    encoder("bert", config).encode("how tall", candidates, shared)
    assert (shared.counts.hits, shared.counts.misses) == (0, 5)
    encoder("bert", config).encode("how tall", candidates, shared)
    assert (shared.counts.hits, shared.counts.misses) == (5, 5)
    encoder("bert", config).encode("what", candidates, shared)
    assert (shared.counts.hits, shared.counts.misses) == (9, 6)


def test_partitions_files_and_budgets_share_nothing() -> None:
    """Tokens of another tenant, another tokenizer or another length are misses; so are those of unnamed files."""
    config, shared = EncodingConfig(max_length=48, question_length=16), TokenCache(10**6)
    longer = EncodingConfig(max_length=64, question_length=16)
    unnamed = [PairEncoder(tokenizer("bert"), family="bert", config=config, type_vocab_size=2) for _ in range(2)]
    for each, partition in [
        (encoder("bert", config), ""),
        (encoder("bert", config), "tenant"),
        (encoder("bert", config), "tenant2"),
        (encoder("bert", config, digest="another file"), ""),
        (encoder("bert", longer), ""),
        *((each, "") for each in unnamed),
    ]:
        each.encode("how tall", [Candidate(text="a")], shared, partition=partition)
        assert shared.counts.hits == 0
