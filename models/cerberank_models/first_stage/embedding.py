"""Computes the vectors of many texts and writes them to a store (`vector_store.py`). A killed run can be continued.

Texts are encoded in shards of consecutive lines of the input, and each shard is written atomically to `parts/`. After
the last shard, the parts are merged by digest into the store, the manifest is written, and the parts are removed.

So the vectors of the whole input are on the disk twice during the merge. The memory of this process holds one shard,
and about 105 bytes per distinct text for the set of known digests. During the merge it holds 64 bytes per distinct
text.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Vector
from cerberank_models.checkpoint.atomic import flush_folder, replacing, write_json
from cerberank_models.checkpoint.bound import Bound
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.first_stage.opening import open_encoder, open_vector_backend
from cerberank_models.first_stage.vector_backend import VectorBackend
from cerberank_models.first_stage.vector_store import (
    DIGESTS,
    MANIFEST,
    OFFSETS,
    VECTORS,
    StoreManifest,
    VectorStoreError,
    check_files,
    describe_files,
    read_manifest,
    text_digests,
)
from cerberank_models.shards import ShardMap
from cerberank_models.text_config import TextRankerConfig
from cerberank_models.text_encoding import TextEncoder
from cerberank_models.tokens import replace_surrogates
from cerberank_models.transformer import Count, Frozen

SHARD = 4096
"""The number of texts in a shard."""
STEP = 256
"""The number of texts that are encoded at once."""
PARTS, PLAN = "parts", "plan.json"


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of a shard's texts, one after another."""

    numbers: NDArray[np.float16]
    sizes: NDArray[np.int64]
    """The number of numbers in each text's vector."""


EncodeShard = Callable[[Sequence[str]], Vectors]
"""Encodes those texts of a shard that did not occur before, which may be none. They contain no lone surrogates."""


def encoder_of(backend: VectorBackend, encoder: TextEncoder) -> EncodeShard:
    """A function that encodes shards with an open encoder. It raises ArithmeticError for numbers beyond float16."""

    def encode(texts: Sequence[str]) -> Vectors:
        vectors: list[Vector] = []
        for start in range(0, len(texts), STEP):
            vectors += backend.encode(encoder.candidates(texts[start : start + STEP]))
        numbers = np.concatenate(vectors) if vectors else np.zeros(0, dtype=np.float16)
        if not np.isfinite(numbers).all():
            raise ArithmeticError("a vector holds a number that float16 cannot hold")
        return Vectors(numbers, np.fromiter(map(len, vectors), dtype=np.int64, count=len(vectors)))

    return encode


def open_shard_encoder(checkpoint: Path, *, kind: str, precision: str, device: str, threads: int) -> EncodeShard:
    """Open the encoder of a checkpoint. Raises ValueError if it computes in another precision than `precision`."""
    read = read_checkpoint(checkpoint)
    backend = open_vector_backend(read, kind=kind, precision=precision, device=device, threads=threads)
    if backend.precision != precision:
        raise ValueError(f"this encoder runs in {backend.precision}: give it as --precision")
    return encoder_of(backend, open_encoder(read))


class _Plan(Frozen):
    """The settings on which the shards of an unfinished store depend."""

    encoder: str
    precision: str
    computed_by: str
    inputs: str
    shard: Count


def embed(
    texts: Callable[[], Iterator[str]],
    out: Path,
    *,
    inputs: str,
    computed_by: str,
    config: TextRankerConfig,
    precision: str,
    shard_map: ShardMap[list[str], Vectors],
    progress: Callable[[int], None] = lambda texts: None,
    shard: int = SHARD,
) -> StoreManifest:
    """Write the store `out` of the distinct `texts`. If it is finished already, only check its files.

    `inputs` is the SHA-256 of the file of texts, and `computed_by` that of the graph or weights that encode them in
    `precision`. Lone surrogates are replaced. `progress` is called with the number of texts that were read.

    Raises BoundError if `out` was begun with other arguments, VectorStoreError if a finished store is damaged, and
    ValueError if there are no texts.
    """
    if next(texts(), None) is None:
        raise ValueError("the input holds no text")
    plan = _Plan(
        encoder=config.encoder,
        precision=precision,
        computed_by=computed_by,
        inputs=inputs,
        shard=shard,
    )
    _begin(out, plan)
    if (out / MANIFEST).is_file():
        manifest = read_manifest(out)
        check_files(out, manifest)
    else:
        width = 0 if config.token_ranker == "colbert" else config.fixed_width
        parts = _parts(texts, out / PARTS, shard_map, progress, shard)
        count = _merge(out, parts, width)
        made = plan.model_dump(exclude={"shard"})
        manifest = StoreManifest(**made, texts=count, width=width, files=describe_files(out))
        write_json(out / MANIFEST, manifest.model_dump())
    _remove_leftovers(out)
    return manifest


def _begin(out: Path, plan: _Plan) -> None:
    """Write the plan of a new store. Raises BoundError for another plan in `out`, VectorStoreError for other files."""
    # A run that was killed while it wrote the plan, the first file, leaves only the hidden file of `replacing`.
    is_new = not (out / PLAN).exists()
    if is_new and out.exists() and any(not each.name.startswith(f".{PLAN}.") for each in out.iterdir()):
        raise VectorStoreError(f"{out} holds other files: a store needs a folder of its own")
    Bound(out, plan.model_dump()).begin(PLAN)


def _remove_leftovers(out: Path) -> None:
    """Remove files that only an unfinished store needs, and partial files of killed runs."""
    if (out / PARTS).exists():
        shutil.rmtree(out / PARTS)
    for partial in out.glob(".*.partial"):
        partial.unlink()


def _parts(
    texts: Callable[[], Iterator[str]],
    folder: Path,
    shard_map: ShardMap[list[str], Vectors],
    progress: Callable[[int], None],
    size: int,
) -> list[Path]:
    """Encode the missing shards; returns the files of all shards."""
    parts: list[Path] = []
    read: dict[int, tuple[int, NDArray[np.generic]]] = {}

    def missing() -> Iterator[tuple[int, list[str]]]:
        known: set[bytes] = set()
        for number, part in enumerate(_shards(texts(), size)):
            fresh = _distinct(part, known)
            parts.append(folder / f"{number:06d}.npz")
            if parts[-1].exists():
                progress(len(part))
                continue
            read[number] = len(part), text_digests(fresh)
            yield number, fresh

    for number, encoded in shard_map(missing()):
        count, digests = read.pop(number)
        _write_part(parts[number], digests, encoded)
        progress(count)
    return parts


def _shards(texts: Iterator[str], size: int) -> Iterator[list[str]]:
    part: list[str] = []
    for text in texts:
        part.append(replace_surrogates(text))
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def _distinct(texts: Sequence[str], known: set[bytes]) -> list[str]:
    """The distinct texts whose digests are not `known`; their digests are added to `known`."""
    fresh = []
    for text, digest in zip(texts, text_digests(texts), strict=True):
        if (key := digest.tobytes()) not in known:
            known.add(key)
            fresh.append(text)
    return fresh


def _write_part(path: Path, digests: NDArray[np.generic], encoded: Vectors) -> None:
    with replacing(path) as file:
        np.savez(file, digests=digests, numbers=encoded.numbers, sizes=encoded.sizes)


def _merge(out: Path, parts: Sequence[Path], width: int) -> int:
    """Write the store's arrays, sorted by digest; returns the number of texts. `width` is 0 if widths differ."""
    digests, sizes = _joined(parts, "digests"), _joined(parts, "sizes")
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    offsets = np.zeros(len(order) + 1, dtype=np.int64)
    np.cumsum(sizes[order], out=offsets[1:])
    starts = np.empty(len(order), dtype=np.int64)
    starts[order] = offsets[:-1]
    _save(out / DIGESTS, digests[order])
    if not width:
        _save(out / OFFSETS, offsets)
    shape = (len(order), width) if width else (int(offsets[-1]),)
    vectors = open_memmap(out / VECTORS, mode="w+", dtype=np.float16, shape=shape)
    flat, row = vectors.reshape(-1), 0
    for path in parts:
        with np.load(path, allow_pickle=False) as part:
            ends = np.cumsum(part["sizes"])
            for vector in np.split(part["numbers"], ends[:-1]) if len(ends) else ():
                flat[starts[row] : starts[row] + len(vector)] = vector
                row += 1
    vectors.flush()
    with (out / VECTORS).open("rb+") as file:
        os.fsync(file.fileno())
    flush_folder(out)
    return len(order)


def _joined(parts: Sequence[Path], name: str) -> NDArray[np.generic]:
    arrays = []
    for path in parts:
        with np.load(path, allow_pickle=False) as part:
            arrays.append(part[name])
    return np.concatenate(arrays)


def _save(path: Path, array: NDArray[np.generic]) -> None:
    with replacing(path) as file:
        np.save(file, array, allow_pickle=False)
