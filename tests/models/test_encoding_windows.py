"""Long texts in pairs of windows, against the tokenizer's own encoding of the whole text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import TEXT, bert_tokenizer, roberta_tokenizer

from cerberank_models.config import EncodingConfig
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder
from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import MOST_CHARACTERS
from cerberank_models.transformer import PAIR_TEMPLATES
from cerberank_models.windows import NO_SPAN, Windowing
from cerberank_models.windows import cut as windows_of

BERT, ROBERTA = bert_tokenizer(), roberta_tokenizer()
LONG = " ".join(TEXT.split() * 4)
TEXTS = st.integers(0, len(LONG)).map(lambda end: LONG[:end]) | st.text(max_size=80)
CANDIDATES = st.lists(st.builds(Candidate, text=TEXTS, previous=st.just("a b"), next=st.just("c")), max_size=4)


def encoder(family: str = "bert", **changes: Any) -> PairEncoder:
    config = EncodingConfig(**({"max_length": 40, "question_length": 16} | changes))
    tokenizer = ROBERTA if family == "roberta" else BERT
    return PairEncoder(
        tokenizer,
        family=family,  # type: ignore[arg-type]
        config=config,
        type_vocab_size=1 if family == "roberta" else 2,
        tokenizer_digest="d",
    )


def row(pairs: EncodedPairs, index: int) -> list[int]:
    return pairs.token_ids[pairs.offsets[index] : pairs.offsets[index + 1]].tolist()  # type: ignore[no-any-return]


def parts(family: str, ids: list[int]) -> tuple[list[int], list[int], list[int]]:
    """The tokens before a pair's candidate, the candidate's tokens, and those behind it."""
    template = PAIR_TEMPLATES[family]  # type: ignore[index]
    separator = (ROBERTA if family == "roberta" else BERT).token_to_id(template.separator)
    start = ids.index(separator) + template.between
    end = ids.index(separator, start)
    return ids[:start], ids[start:end], ids[end:]


@pytest.mark.parametrize("family", ["bert", "roberta"])
@given(
    candidates=CANDIDATES,
    question=st.sampled_from(["how tall is the tower ?", LONG]),
    truncation=st.sampled_from(["last_first", "longest_first"]),
    segments=st.sampled_from([2, 3]),
)
@settings(max_examples=40)
def test_windows_hold_every_token_of_a_long_text_and_short_ones_stay_the_same(
    family: str, candidates: list[Candidate], question: str, truncation: str, segments: int
) -> None:
    """A window stands where the cut text stood, nothing else changes; a text that fits makes the pair as before."""
    made = encoder(family, truncation=truncation, segments=segments)
    cut = made.encode(question, candidates)
    pairs = made.encode(question, candidates, windowing=Windowing())
    assert pairs.lengths.max(initial=0) <= 40
    assert pairs.candidates == len(candidates)
    first = np.arange(len(candidates) + 1) if pairs.windows is None else pairs.windows.offsets
    for index, candidate in enumerate(candidates):
        rows = [row(pairs, each) for each in range(first[index], first[index + 1])]
        before, pieces, behind = parts(family, row(cut, index))
        whole = made.tokenizer.encode(candidate.text, add_special_tokens=False)
        if len(pieces) == len(whole.ids):
            assert rows == [row(cut, index)]
            continue
        counts, begins, sizes, _ = windows_of(np.asarray([len(whole.ids)]), np.asarray([len(pieces)]), Windowing())
        assert (len(rows), pairs.windows is not None) == (counts[0], True)
        for place, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
            assert parts(family, rows[place]) == (before, whole.ids[begin : begin + size], behind)
            span = [whole.offsets[begin][0], whole.offsets[begin + size - 1][1]]
            assert pairs.windows.spans[first[index] + place].tolist() == span
    question_tokens = len(made.tokenizer.encode(question, add_special_tokens=False).ids)
    held = [
        len(parts(family, row(cut, index))[0]) - 1 - PAIR_TEMPLATES[family].between for index in range(len(first) - 1)
    ]  # type: ignore[index]
    assert not pairs.truncated.any()
    assert pairs.question_truncated == any(each < question_tokens for each in held)
    if pairs.windows is not None:
        single = np.diff(pairs.windows.offsets) == 1
        assert (pairs.windows.spans[pairs.windows.offsets[:-1][single]] == NO_SPAN).all()


def test_the_model_s_rule_holds_where_none_is_named() -> None:
    """Windows by the best or the mean, or a cut; a rule that is named replaces it."""

    def rule(own: str, named: Any = None) -> str:
        pairs = encoder(windows=own).encode("how ?", [Candidate(text=LONG)], windowing=Windowing(combine=named))
        return "off" if pairs.windows is None else pairs.windows.combine

    assert [rule(own) for own in ("best", "mean", "off")] == ["best", "mean", "off"]
    assert [rule("off", named) for named in ("best", "mean")] == ["best", "mean"]


def test_a_cache_changes_nothing() -> None:
    """Neither the first time nor when tokens and spans are found."""
    made, cache = encoder(), TokenCache(1_000_000)
    candidates = [Candidate(text=LONG), Candidate(text="a b")]
    wanted = made.encode("how ?", candidates, windowing=Windowing())
    for _ in range(2):
        got = made.encode("how ?", candidates, cache, windowing=Windowing())
        assert got.token_ids.tolist() == wanted.token_ids.tolist()
        assert got.windows.spans.tolist() == wanted.windows.spans.tolist()


def test_most_tokens_are_read_of_a_candidate_with_and_without_windows() -> None:
    """The rest behind them is told as truncated; a number beyond every text has no effect."""
    made, text = encoder(), "a " * 100
    assert made.encode("how ?", [Candidate(text=text)], most_tokens=5).lengths.tolist() == [2 + 3 + 5]
    short = made.encode("how ?", [Candidate(text=text), Candidate(text="a")], most_tokens=5, windowing=Windowing())
    assert (short.windows, short.lengths.tolist()) == (None, [10, 6])
    assert short.truncated.tolist() == [True, False]
    some = made.encode("how ?", [Candidate(text=text)], most_tokens=60, windowing=Windowing())
    assert some.windows.spans[-1].tolist()[1] == 2 * 60 - 1
    assert some.truncated.all()
    whole = made.encode("how ?", [Candidate(text=text)], most_tokens=10**30, windowing=Windowing())
    assert not whole.truncated.any()


def test_limits_cut_the_end_and_say_so() -> None:
    """Two windows of a text, and no character beyond the most."""
    made = encoder()
    pairs = made.encode("how ?", [Candidate(text="a " * 100), Candidate(text="b")], windowing=Windowing(most=2))
    assert pairs.windows.offsets.tolist() == [0, 2, 3]
    assert pairs.truncated_candidates.tolist() == [True, False]
    huge = made.encode("how ?", [Candidate(text="a " * MOST_CHARACTERS)], windowing=Windowing())
    assert huge.truncated.all()


def test_a_text_of_blanks_is_read_to_its_end() -> None:
    """More characters than are tokenised at first, but few tokens: the pair holds them all."""
    pairs = encoder().encode("how ?", [Candidate(text=" " * 5000 + "tower")], windowing=Windowing())
    assert (pairs.windows, pairs.truncated.tolist(), pairs.lengths.tolist()) == (None, [False], [2 + 3 + 1])


def test_texts_that_may_have_one_window_each_are_tokenised_once() -> None:
    """The pairs are those of cut texts; only a text of blanks is read again, because its pair may hold more."""
    made, cache = encoder(), TokenCache(1_000_000)
    candidates = [Candidate(text=f"{number} " * 100) for number in range(4)]
    wanted = made.encode("how ?", candidates)
    for windowing in (Windowing(most=1), Windowing(most_rows=7)):
        got = made.encode("how ?", candidates, cache, windowing=windowing)
        assert (got.token_ids.tolist(), got.windows) == (wanted.token_ids.tolist(), None)
        assert got.truncated.all()
    assert cache.counts.misses == 1 + len(candidates)
    blanks = Candidate(text=" " * 5000 + "tower")
    read = made.encode("how ?", [*candidates, blanks], windowing=Windowing(most=1))
    assert (read.lengths.tolist()[-1], read.truncated.tolist()[-1]) == (2 + 3 + 1, False)


@pytest.mark.parametrize("limits", [{"windowing": Windowing(most=8)}, {"windowing": Windowing(), "most_tokens": 200}])
def test_no_more_of_a_text_is_tokenised_than_its_windows_may_hold(limits: dict[str, Any]) -> None:
    """The windows are those of the whole text, whose tokens would take 12 bytes each in the cache."""
    made, cache = encoder(), TokenCache(10_000_000)
    pairs = made.encode("how ?", [Candidate(text="." * MOST_CHARACTERS)], cache, **limits)
    tokens, room = limits.get("most_tokens", MOST_CHARACTERS), 40 - 3 - 2
    _, begins, sizes, _ = windows_of(np.asarray([tokens]), np.asarray([room]), limits["windowing"])
    assert pairs.windows.spans.tolist() == np.stack([begins, begins + sizes], axis=1).tolist()
    assert pairs.truncated.all()
    assert cache.counts.size < 12 * MOST_CHARACTERS / 10
