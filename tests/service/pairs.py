"""Encoded pairs whose every row can be told from the others."""

from __future__ import annotations

import numpy as np

from cerberank_models.encoding import EncodedPairs


def numbered_pairs(count: int) -> EncodedPairs:
    """Pair i is i + 2 tokens long and made of the token i + 10."""
    lengths = np.arange(count) + 2
    ids = np.repeat(np.arange(count) + 10, lengths).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return EncodedPairs(
        token_ids=ids, type_ids=np.zeros_like(ids), offsets=offsets, truncated=np.zeros(count, dtype=np.bool_)
    )
