"""BM25: Lucene's formula, the order of equal texts, what has no word."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_training.data.bm25 import Bm25Index

WORDS = ["alpha", "beta", "gamma", "delta", "river"]
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), min_size=1, max_size=8).filter(any)


def scores(corpus: list[str], query: str) -> np.ndarray:
    """BM25 by its definition: sum of idf * tf / (tf + k1 (1 - b + b length / mean length))."""
    counts = [Counter(text.split()) for text in corpus]
    mean = sum(len(text.split()) for text in corpus) / len(corpus)
    total = np.zeros(len(corpus))
    for word in query.split():
        df = sum(word in count for count in counts)
        idf = log(1 + (len(corpus) - df + 0.5) / (df + 0.5))
        for place, count in enumerate(counts):
            norm = 1.5 * (0.25 + 0.75 * sum(count.values()) / mean)
            total[place] += idf * count[word] / (count[word] + norm) if count[word] else 0.0
    return total


@given(corpus=texts, query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join), k=st.integers(1, 9))
def test_the_best_texts_are_those_of_the_formula(corpus: list[str], query: str, k: int) -> None:
    """The k highest scores of texts that share a word, best first; equal texts keep their order."""
    expected = scores(corpus, query)
    got = Bm25Index(corpus).top(query, k)
    assert len(got) == min(k, int((expected > 0).sum()))
    assert expected[got] == pytest.approx(np.sort(expected)[::-1][: len(got)], rel=1e-5)
    for one, other in pairwise(got):
        assert one < other or corpus[one] != corpus[other]


def test_equal_texts_are_cut_by_position() -> None:
    """The first of many equal texts are the top, whatever partition and sort do with ties."""
    assert Bm25Index(["other", *["river"] * 4]).top("river", 2) == [1, 2]
    got = Bm25Index([*["river", "river bed"] * 100, "other"]).top("river", 150)
    assert got == [*range(0, 200, 2), *range(1, 100, 2)]


def test_words_are_folded_and_stop_words_ignored() -> None:
    """Upper case and punctuation do not matter; a query of stop words, or of unknown ones, finds nothing."""
    index = Bm25Index(iter(["The River!", "a lake"]))
    assert (len(index), index.top("RIVER?", 5)) == (2, [0])
    assert index.top("is it the?", 5) == index.top("ocean", 5) == index.top("", 5) == []
    with pytest.raises(ValueError, match="holds a word"):
        Bm25Index(["", "the"])


def test_its_size_is_eight_bytes_a_posting_and_the_vocabulary() -> None:
    """Twice the texts take twice the postings, and the same vocabulary."""
    small, large = (Bm25Index([f"{word} river" for word in WORDS[:4]] * n).nbytes for n in (100, 200))
    assert large - small == 8 * 100 * 8
