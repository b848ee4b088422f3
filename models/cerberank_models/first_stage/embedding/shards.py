"""What is encoded as one piece: a shard of texts, the vectors of a shard, and the engine of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Vector
from cerberank_models.first_stage.contract import VectorBackend
from cerberank_models.text_encoding import TextEncoder

STEP = 256
"""Texts that are encoded at once."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Distinct texts without lone surrogates; none where all of the input's part were met before."""

    number: int
    texts: list[str]


@dataclass(frozen=True, slots=True)
class EncodedShard:
    """The vectors of a shard's texts, one after another."""

    number: int
    numbers: NDArray[np.float16]
    sizes: NDArray[np.int64]
    """Numbers of each text's vector."""


Engine = Callable[[Iterator[Shard]], Iterator[EncodedShard]]
"""Encodes shards, and returns them in any order."""


def local(backend: VectorBackend, encoder: TextEncoder) -> Engine:
    """An engine that encodes one shard after another in this process."""

    def run(shards: Iterator[Shard]) -> Iterator[EncodedShard]:
        for shard in shards:
            yield encode_shard(shard, backend, encoder)

    return run


def encode_shard(shard: Shard, backend: VectorBackend, encoder: TextEncoder) -> EncodedShard:
    """The vectors of a shard. Raises ArithmeticError for a number that float16 cannot hold."""
    vectors: list[Vector] = []
    for start in range(0, len(shard.texts), STEP):
        vectors += backend.encode(encoder.candidates(shard.texts[start : start + STEP]))
    numbers = np.concatenate(vectors) if vectors else np.zeros(0, dtype=np.float16)
    if not np.isfinite(numbers).all():
        raise ArithmeticError("a vector holds a number that float16 cannot hold")
    return EncodedShard(shard.number, numbers, np.fromiter(map(len, vectors), dtype=np.int64, count=len(vectors)))
