"""Vectors of candidates on a disk, computed before a question arrives; opened as memory maps.

    manifest.json  digests.npy  vectors.npy  [offsets.npy]

`digests.npy` holds the sorted 128-bit digests of the texts as big-endian pairs of 64-bit numbers `[n, 2]`; row i of
`vectors.npy` `[n, W]`, fp16, is the vector of digest i. ColBERT's vectors lie one after another, `[numbers]`, and
`offsets.npy` `[n + 1]` says where. The manifest is written last: without it the folder is no store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from cerberank_models.backends.contract import Vector
from cerberank_models.checkpoint.regular import open_regular, read_regular
from cerberank_models.config import Count, FirstStageConfig, Frozen

NumberT = TypeVar("NumberT", np.uint64, np.float16, np.int64)
MANIFEST, DIGESTS, VECTORS, OFFSETS = "manifest.json", "digests.npy", "vectors.npy", "offsets.npy"
DIGEST_BYTES = 16


class StoreError(ValueError):
    """The folder is no store of vectors, or one of another encoder."""


class StoreManifest(Frozen):
    """What a store holds."""

    format: int = 1
    encoder: str
    """`FirstStageConfig.encoder` of the vectors."""
    precision: str
    """The number format that they were computed in; they are stored in fp16."""
    texts: Count
    """Distinct texts."""
    width: int
    """Numbers of a vector; 0 where it depends on the text's length."""
    inputs: str
    """The SHA-256 of the file that the texts came from."""


def text_digests(texts: Sequence[str]) -> NDArray[np.uint64]:
    """The digests of texts as big-endian numbers, high and low half, `[n, 2]`."""
    content = bytearray()
    for text in texts:
        content += blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
    return np.frombuffer(content, dtype=">u8").reshape(-1, 2).astype(np.uint64)


class VectorStore:
    """The vectors of a store. Threads may share one, because it is only read."""

    def __init__(
        self,
        manifest: StoreManifest,
        digests: NDArray[np.uint64],
        vectors: NDArray[np.float16],
        offsets: NDArray[np.int64] | None,
    ) -> None:
        """See `open`."""
        self.manifest = manifest
        """What the store holds."""
        self._high, self._low = np.ascontiguousarray(digests[:, 0]), digests[:, 1]
        self._vectors, self._offsets = vectors, offsets

    @classmethod
    def open(cls, path: Path, config: FirstStageConfig) -> VectorStore:
        """Map the files of the folder `path`; the high halves of the digests, 8 bytes a text, are read into memory.

        Raises StoreError for a folder that is no store or was damaged, and for vectors of another encoder, whose
        message names both.
        """
        manifest = read_manifest(path)
        if manifest.encoder != config.encoder:
            raise StoreError(
                f"{path} holds vectors of the encoder {manifest.encoder}, the checkpoint's first stage has the encoder "
                f"{config.encoder}: make a store for it with `cerberank embed`"
            )
        ragged = config.token_ranker == "colbert"
        digests, vectors = _mapped(path / DIGESTS, np.uint64), _mapped(path / VECTORS, np.float16)
        offsets = _mapped(path / OFFSETS, np.int64) if ragged else None
        shape = (int(offsets[-1]),) if offsets is not None else (manifest.texts, config.fixed_width)
        lengths = manifest.texts + 1 if offsets is None else len(offsets)
        if digests.shape != (manifest.texts, 2) or vectors.shape != shape or lengths != manifest.texts + 1:
            raise StoreError(f"{path} does not have the sizes that its {MANIFEST} states: make it again")
        return cls(manifest, digests, vectors, offsets)

    def __len__(self) -> int:
        """The number of distinct texts."""
        return len(self._high)

    def find(self, texts: Sequence[str]) -> list[Vector | None]:
        """The vector of each text, None where the store does not have it."""
        if not texts:
            return []
        wanted = text_digests(texts)
        places = np.searchsorted(self._high, wanted[:, 0])
        # Digests with an equal high half follow one another; two of a billion texts have one with a chance of 1 in 40.
        while True:
            inside = np.minimum(places, len(self._high) - 1)
            onward = (self._high[inside] == wanted[:, 0]) & (self._low[inside] < wanted[:, 1]) & (inside == places)
            if not onward.any():
                break
            places = places + onward
        found = (inside == places) & (self._high[inside] == wanted[:, 0]) & (self._low[inside] == wanted[:, 1])
        vectors: list[Vector | None] = [None] * len(texts)
        rows = np.flatnonzero(found)
        if self._offsets is None:
            for row, vector in zip(rows.tolist(), np.asarray(self._vectors[inside[rows]]), strict=True):
                vectors[row] = vector
        else:
            starts, stops = self._offsets[inside[rows]], self._offsets[inside[rows] + 1]
            for row, start, stop in zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True):
                vectors[row] = np.array(self._vectors[start:stop])
        return vectors


def read_manifest(path: Path) -> StoreManifest:
    """The manifest of a store. Raises StoreError where there is none."""
    try:
        return StoreManifest.model_validate(json.loads(read_regular(path / MANIFEST)))
    except (OSError, ValidationError, json.JSONDecodeError) as error:
        raise StoreError(f"{path} is no store of vectors, or was not finished: {error}") from error


def _mapped(path: Path, dtype: type[NumberT]) -> NDArray[NumberT]:
    try:
        with open_regular(path):
            pass
        array: NDArray[NumberT] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    if array.dtype != dtype:
        raise StoreError(f"{path} holds {array.dtype}, not {np.dtype(dtype)}")
    return array
