"""The name of a question/candidate pair: a hash of its texts, the only one that scores are kept under.

Teachers and students tokenise differently, so scores cross over by text, never by token ids
(CERBERUS section 4: each teacher reads the raw pair with its own tokenizer).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cerberank_models.encoding import Candidate

Keys = NDArray[np.uint64]


def pair_keys(question: str, candidates: Sequence[Candidate], *, context: bool) -> Keys:
    """Keys [n] of one question's pairs: 64 bits of BLAKE2b over question and candidate, each with its length before it.

    With `context` the previous and the next sentence count too: a teacher that does not read them gives one score
    to a sentence wherever it stands. Two of ASNQ's 23.7 million pairs share a key with probability 1.5e-5.
    """
    start = hashlib.blake2b(_framed(question), digest_size=8)
    keys = bytearray()
    for candidate in candidates:
        state = start.copy()
        state.update(_framed(candidate.text))
        if context:
            state.update(_framed(candidate.previous) + _framed(candidate.next))
        keys += state.digest()
    return np.frombuffer(bytes(keys), dtype="<u8").astype(np.uint64, copy=False)


def data_digest(keys: Keys) -> str:
    """SHA-256 of all keys of a data set, in order: other texts, or the same in another order, give another one."""
    return hashlib.sha256(keys.astype("<u8", copy=False).tobytes()).hexdigest()


def _framed(text: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    return len(content).to_bytes(8, "little") + content
