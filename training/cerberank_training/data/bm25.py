"""BM25 over texts in memory, by the library bm25s. It gives runs for TREC collections, and negatives."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import bm25s
import numpy as np
from numpy.typing import NDArray


class Bm25Index:
    """An index with Lucene's weights (k1 1.5, b 0.75), English stop words and no stemming."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Index the texts in one pass, without keeping them. Raises ValueError when no text has a word."""
        tokens = bm25s.tokenize(texts, show_progress=False)
        if not tokens.vocab:
            raise ValueError("BM25 needs a text that holds a word")
        self._index = bm25s.BM25(backend="numpy")
        self._index.index(tokens, show_progress=False)

    def __len__(self) -> int:
        """The number of texts."""
        return int(self._index.scores["num_docs"])

    @property
    def nbytes(self) -> int:
        """The bytes of the index in memory: eight for each word of each text, and the vocabulary."""
        arrays = sum(self._index.scores[name].nbytes for name in ("data", "indices", "indptr"))
        vocabulary = self._index.vocab_dict
        return int(arrays + sys.getsizeof(vocabulary) + sum(sys.getsizeof(word) for word in vocabulary))

    def scores(self, query: str) -> NDArray[np.float32]:
        """The score of each text [n]; 0 for a text that shares no word with the query."""
        (words,) = bm25s.tokenize([query], return_ids=False, show_progress=False)
        return np.asarray(self._index.get_scores(words) if words else np.zeros(len(self)), dtype=np.float32)

    def top(self, query: str, k: int) -> list[int]:
        """The positions of the `k` best texts that share a word with the query, best first. Ties are in order."""
        return best_sharing(self.scores(query), k)


def best_sharing(scores: NDArray[np.float32], k: int) -> list[int]:
    """The positions of the `k` highest scores above 0, highest first. Ties are in order of position."""
    sharing = np.flatnonzero(scores > 0)
    if len(sharing) > k:
        sharing = sharing[scores[sharing] >= np.partition(scores[sharing], -k)[-k]]
    best: list[int] = sharing[np.argsort(-scores[sharing], kind="stable")][:k].tolist()
    return best
