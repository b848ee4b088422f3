"""The lexical layer: BM25 of a question over its own candidates, before any layer of a network has run.

Its words are the token ids of the pairs, which are there anyway, so that it needs neither an index nor a language.
Tokens whose words begin with the same five letters count as the same word (`tokens.word_stems`).
"""

from __future__ import annotations

import numpy as np

from cerberank_models.backends.stage_contract import Scores
from cerberank_models.encoding import EncodedPairs, PairEncoder

K1, B = 1.2, 0.75
"""The usual constants of BM25: how soon more occurrences of a word count no more, and how much long texts lose."""
DECIMALS = 9
"""The decimals of a score; the next ones are rounding errors."""


def lexical_scores(encoder: PairEncoder, pairs: EncodedPairs) -> Scores:
    """The BM25 scores `[n]` of the n candidates of `pairs`, which `encoder` has just encoded.

    A score is 0 if a candidate shares no word with the question. A word that every pair holds counts for nothing, such
    as those of a decoder's prompt, and the more pairs hold a word the less it counts. The score of a candidate that is
    read in windows is combined from those of its windows, as a stage's scores are.
    """
    assert pairs.begins is not None
    assert pairs.question_ids is not None, "pairs that were selected have lost the question"
    # The number of each token's word in the question, from 1; 0 for a word that the question lacks.
    words = np.unique(encoder.stems[pairs.question_ids])
    number_of = np.zeros(len(encoder.stems), dtype=np.int32)
    number_of[words] = np.arange(1, len(words) + 1)
    numbers = number_of[encoder.stems[pairs.token_ids]]
    # The occurrences after the question, counted in the cells of a table with a row for each pair and a column for
    # each word.
    begins, ends = pairs.offsets[:-1] + pairs.begins, pairs.offsets[1:]
    hits = np.flatnonzero(numbers)
    rows = np.repeat(np.arange(len(pairs)), pairs.lengths)[hits]
    after_question = hits >= begins[rows]
    counts = np.bincount(rows[after_question] * (len(words) + 1) + numbers[hits[after_question]])
    cells = np.flatnonzero(counts)
    rows, columns = np.divmod(cells, len(words) + 1)
    counts = counts[cells]
    # BM25: rare words count more, repetitions less and less, and the same number of them less in a longer text.
    pair_counts = np.bincount(columns, minlength=len(words) + 1)
    rarity = np.log((len(pairs) + 0.5) / (pair_counts + 0.5))
    lengths = ends - begins
    norms = K1 * (1.0 - B + B * lengths / lengths.mean())
    weights = rarity[columns] * counts * (K1 + 1.0) / (counts + norms[rows])
    scores = np.bincount(rows, weights, minlength=len(pairs)).astype(np.float64)
    scores = scores if pairs.windows is None else pairs.windows.by_candidate(scores)
    # NumPy's last binary digit depends on where an array begins in memory, and ties decide what is kept.
    return np.round(scores, DECIMALS)
