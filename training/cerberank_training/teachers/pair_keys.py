"""The key of a question/candidate pair in caches of teachers' scores: a hash of its texts.

Keys are hashes of texts and not of token ids, because teachers and students tokenise differently. CERBERUS does not say
how its scores were stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cerberank_models.encoding import Candidate

Keys = NDArray[np.uint64]


def pair_keys(question: str, candidates: Sequence[Candidate], *, context: bool) -> Keys:
    """Keys [n] of one question's pairs: 64 bits of BLAKE2b over question and candidate, each prefixed by its length.

    With `context` the keys include the previous and the next sentence. Without it, a sentence has the same key in every
    place. The probability that any two of ASNQ's 23.7 million pairs share a key is 1.5e-5.
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
    """SHA-256 of all keys of a data set, in order; it depends on the texts and on their order."""
    return hashlib.sha256(keys.astype("<u8", copy=False).tobytes()).hexdigest()


def _framed(text: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    return len(content).to_bytes(8, "little") + content
