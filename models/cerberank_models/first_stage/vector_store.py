"""A store of candidates' vectors, which are computed before a question arrives. Its files are opened as memory maps.

    manifest.json  digests.npy  vectors.npy  [offsets.npy]

- `digests.npy`: the sorted 128-bit digests of the texts, as big-endian pairs of 64-bit numbers `[n, 2]`.
- `vectors.npy`: the vectors in fp16, `[n, W]`; row i belongs to digest i. ColBERT's vectors have different lengths and
  are stored one after another, `[numbers]`.
- `offsets.npy`: the offsets `[n + 1]` of ColBERT's vectors.
- `manifest.json`: the size and SHA-256 of each file. It is written last, and a folder without it is not a store.

A store in use must not be changed, because truncating a mapped file kills the process that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from cerberank_models.backends.stage_contract import Vector
from cerberank_models.checkpoint.regular import file_digest, open_regular, read_regular
from cerberank_models.text_config import TextRankerConfig
from cerberank_models.tokens import replace_surrogates
from cerberank_models.transformer import Count, Frozen

NumberT = TypeVar("NumberT", np.uint64, np.float16, np.int64)
MANIFEST, DIGESTS, VECTORS, OFFSETS = "manifest.json", "digests.npy", "vectors.npy", "offsets.npy"
DIGEST_BYTES = 16


class VectorStoreError(ValueError):
    """The folder is not a store of vectors, or its vectors belong to another encoder."""


class StoredFile(Frozen):
    """One of a store's arrays."""

    size: int
    sha256: str


class StoreManifest(Frozen):
    """The description of a store's content."""

    format: Literal[1] = 1
    encoder: str
    """The `TextRankerConfig.encoder` of the first stage that computed the vectors."""
    precision: str
    """The precision in which the vectors were computed; they are always stored in fp16."""
    texts: Count
    """The number of distinct texts."""
    width: int
    """The width of a vector; 0 if it depends on the text's length."""
    inputs: str
    """The SHA-256 of the file of texts."""
    computed_by: str
    """The SHA-256 of the graph or weights that computed the vectors. It is not compared when a store is opened, because
    other precisions and calibrations of the same encoder give vectors within the precision's tolerance.
    """
    files: Mapping[str, StoredFile]
    """The arrays by their file names."""


def text_digests(texts: Sequence[str]) -> NDArray[np.uint64]:
    """The digests of texts, as big-endian numbers for the high and the low half, `[n, 2]`.

    Lone surrogates count as U+FFFD.
    """
    content = bytearray()
    for text in texts:
        content += blake2b(replace_surrogates(text).encode(), digest_size=DIGEST_BYTES).digest()
    return np.frombuffer(content, dtype=">u8").reshape(-1, 2).astype(np.uint64)


class VectorStore:
    """The vectors of a store. Threads may share an instance, because it is only read."""

    def __init__(
        self,
        manifest: StoreManifest,
        digests: NDArray[np.uint64],
        vectors: NDArray[np.float16],
        offsets: NDArray[np.int64] | None,
    ) -> None:
        """Use mapped arrays; `open` maps and checks them."""
        self.manifest = manifest
        self._high = np.ascontiguousarray(digests[:, 0])
        self._low = digests[:, 1]
        self._vectors = vectors
        self._offsets = offsets

    @classmethod
    def open(cls, path: Path, config: TextRankerConfig) -> VectorStore:
        """Map the files of the folder `path`, and read the high halves of the digests into memory, 8 bytes per text.

        Raises VectorStoreError for a folder that is not a store, for vectors of another encoder (the message names
        both), for files whose sizes or shapes differ from the manifest, and for digests out of order.

        Vectors are not read and files are not hashed, because stores may have many gigabytes. Changed numbers are only
        found by `check_files`, which `cerberank data embed` calls for a finished store.
        """
        manifest = read_manifest(path)
        if manifest.encoder != config.encoder:
            raise VectorStoreError(
                f"{path} holds vectors of the encoder {manifest.encoder}, the checkpoint's first stage has the encoder "
                f"{config.encoder}: make a store for it with `cerberank data embed`"
            )
        ragged = config.token_ranker == "colbert"
        check_sizes(path, manifest, names=(DIGESTS, VECTORS, OFFSETS) if ragged else (DIGESTS, VECTORS))
        digests, vectors = _mapped(path / DIGESTS, np.uint64), _mapped(path / VECTORS, np.float16)
        offsets = _mapped(path / OFFSETS, np.int64) if ragged else None
        if digests.shape != (manifest.texts, 2) or (offsets is not None and offsets.shape != (manifest.texts + 1,)):
            raise _damaged(path, f"does not have the {manifest.texts} texts that its {MANIFEST} states")
        if vectors.shape != ((manifest.texts, config.fixed_width) if offsets is None else (int(offsets[-1]),)):
            raise _damaged(path, f"has vectors of another shape, {vectors.shape}")
        store = cls(manifest, digests, vectors, offsets)
        if not store._in_order():
            raise _damaged(path, f"has a {DIGESTS} or an {OFFSETS} that is not sorted")
        return store

    def __len__(self) -> int:
        """The number of distinct texts."""
        return len(self._high)

    def _in_order(self) -> bool:
        """True if every digest is greater than the one before it, and the offsets of vectors do not decrease."""
        equal = np.flatnonzero(self._high[1:] == self._high[:-1])
        ordered = (self._high[1:] >= self._high[:-1]).all() and (self._low[equal + 1] > self._low[equal]).all()
        offsets = np.zeros(1, np.int64) if self._offsets is None else self._offsets
        return bool(ordered and offsets[0] == 0 and (offsets[1:] >= offsets[:-1]).all())

    def find(self, texts: Sequence[str]) -> list[Vector | None]:
        """The vector of each text, or None if it is not in the store."""
        if not texts:
            return []
        wanted = text_digests(texts)
        places = np.searchsorted(self._high, wanted[:, 0])
        # Digests with the same high half are neighbours; a billion texts have such a pair with a chance of 1 in 40.
        while True:
            inside = np.minimum(places, len(self._high) - 1)
            onward = (self._high[inside] == wanted[:, 0]) & (self._low[inside] < wanted[:, 1]) & (inside == places)
            if not onward.any():
                break
            places = places + onward
        stored = (inside == places) & (self._high[inside] == wanted[:, 0]) & (self._low[inside] == wanted[:, 1])
        vectors: list[Vector | None] = [None] * len(texts)
        rows = np.flatnonzero(stored)
        if self._offsets is None:
            for row, vector in zip(rows.tolist(), np.asarray(self._vectors[inside[rows]]), strict=True):
                vectors[row] = vector
        else:
            starts, stops = self._offsets[inside[rows]], self._offsets[inside[rows] + 1]
            for row, start, stop in zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True):
                vectors[row] = np.array(self._vectors[start:stop])
        return vectors


def read_manifest(path: Path) -> StoreManifest:
    """The manifest of a store. Raises VectorStoreError if there is none."""
    try:
        return StoreManifest.model_validate_json(read_regular(path / MANIFEST))
    except (OSError, ValidationError) as error:
        raise VectorStoreError(f"{path} is not a store of vectors, or was not finished: {error}") from error


def describe_files(path: Path) -> dict[str, StoredFile]:
    """The size and SHA-256 of each array in the folder `path`."""
    paths = [path / name for name in (DIGESTS, VECTORS, OFFSETS) if (path / name).exists()]
    return {each.name: StoredFile(sha256=file_digest(each), size=each.stat().st_size) for each in paths}


def check_sizes(path: Path, manifest: StoreManifest, names: Sequence[str]) -> None:
    """Raise VectorStoreError unless the manifest names the files `names`, and they have the sizes in the manifest."""
    try:
        sizes = {name: (path / name).stat().st_size for name in names}
    except OSError as error:
        raise _damaged(path, f"lacks a file: {error}") from error
    if sizes != {name: file.size for name, file in manifest.files.items()}:
        raise _damaged(path, f"does not have the files and sizes that its {MANIFEST} states")


def check_files(path: Path, manifest: StoreManifest) -> None:
    """Raise VectorStoreError unless the arrays have the hashes in the manifest; reads all of their bytes."""
    if describe_files(path) != manifest.files:
        raise _damaged(path, f"does not have the content that its {MANIFEST} states")


def _damaged(path: Path, problem: str) -> VectorStoreError:
    return VectorStoreError(f"{path} {problem}: remove the folder and make it again with `cerberank data embed`")


def _mapped(path: Path, dtype: type[NumberT]) -> NDArray[NumberT]:
    try:
        with open_regular(path):
            pass
        array: NDArray[NumberT] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:  # EOFError for an empty file
        raise VectorStoreError(f"{path} cannot be read: {error}") from error
    if array.dtype != dtype:
        raise VectorStoreError(f"{path} holds {array.dtype}, not {np.dtype(dtype)}")
    return array
