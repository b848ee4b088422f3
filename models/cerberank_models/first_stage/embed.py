"""Computes the vectors of many texts and writes a store (`store.py`); a killed run goes on where it was.

Texts are encoded in shards of consecutive lines of the input. A shard is written atomically to `parts/`; when all are
there, they are merged by digest into the store, its manifest is written, and the parts are removed. So the vectors of
the whole input are on the disk twice for a moment; in memory are one shard, and 24 bytes a text.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from cerberank_models.backends.contract import Vector
from cerberank_models.checkpoint.atomic import flush_folder, replacing, write_json
from cerberank_models.first_stage.contract import VectorBackend
from cerberank_models.first_stage.encoding import FirstStageEncoder
from cerberank_models.first_stage.store import (
    DIGESTS,
    MANIFEST,
    OFFSETS,
    VECTORS,
    StoreError,
    StoreManifest,
    describe_files,
    text_digests,
)

SHARD = 4096
"""Texts of a shard."""
STEP = 256
"""Texts that are encoded at once."""
PARTS, PLAN = "parts", "plan.json"


def embed(
    texts: Callable[[], Iterator[str]],
    out: Path,
    *,
    inputs: Path,
    backend: VectorBackend,
    encoder: FirstStageEncoder,
    progress: Callable[[int], None] = lambda texts: None,
    shard: int = SHARD,
) -> StoreManifest:
    """Write the store `out` of the distinct `texts` of the file `inputs`; a finished one is only checked.

    `progress` is called with the number of texts that were read. Raises StoreError, naming the field, where `out` was
    begun with other inputs, another encoder or another precision, ValueError without a text.
    """
    plan = {
        "encoder": backend.config.encoder,
        "precision": backend.precision,
        "inputs": _digest(inputs),
        "shard": shard,
    }
    if _begun(out, plan):
        return StoreManifest.model_validate(json.loads((out / MANIFEST).read_bytes()))
    known: set[bytes] = set()
    parts: list[Path] = []
    for number, part in enumerate(_shards(texts(), shard)):
        fresh = _distinct(part, known)
        path = out / PARTS / f"{number:06d}.npz"
        if not path.exists():
            _write_part(path, fresh, backend, encoder)
        parts.append(path)
        progress(len(part))
    if not known:
        raise ValueError(f"{inputs} holds no text")
    width = 0 if backend.config.token_ranker == "colbert" else backend.config.fixed_width
    _merge(out, parts, width)
    manifest = StoreManifest(
        encoder=backend.config.encoder,
        precision=backend.precision,
        texts=len(known),
        width=width,
        inputs=str(plan["inputs"]),
        files=describe_files(out),
    )
    write_json(out / MANIFEST, manifest.model_dump())
    shutil.rmtree(out / PARTS)
    return manifest


def _begun(out: Path, plan: dict[str, object]) -> bool:
    """Whether the store is finished; a begun one must have the same plan, a new one gets it."""
    finished = (out / MANIFEST).is_file()
    if finished or (out / PLAN).is_file():
        was = json.loads((out / PLAN).read_bytes())
        for field, value in plan.items():
            if was.get(field) != value:
                raise StoreError(f"{out} was begun with another {field}: {was.get(field)}, now it is {value}")
        return finished
    if out.exists() and any(out.iterdir()):
        raise StoreError(f"{out} holds other files: a store needs a folder of its own")
    (out / PARTS).mkdir(parents=True, exist_ok=True)
    write_json(out / PLAN, plan)
    return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shards(texts: Iterator[str], size: int) -> Iterator[list[str]]:
    part: list[str] = []
    for text in texts:
        part.append(text)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def _distinct(texts: Sequence[str], known: set[bytes]) -> list[str]:
    """The texts that are not `known` by their digests, each once; they are known then."""
    fresh = []
    for text, digest in zip(texts, text_digests(texts), strict=True):
        if (key := digest.tobytes()) not in known:
            known.add(key)
            fresh.append(text)
    return fresh


def _write_part(path: Path, texts: Sequence[str], backend: VectorBackend, encoder: FirstStageEncoder) -> None:
    vectors: list[Vector] = []
    for start in range(0, len(texts), STEP):
        vectors += backend.encode(encoder.candidates(texts[start : start + STEP]))
    numbers = np.concatenate(vectors) if vectors else np.zeros(0, dtype=np.float16)
    if not np.isfinite(numbers).all():
        raise ArithmeticError("a vector holds a number that float16 cannot hold")
    sizes = np.fromiter(map(len, vectors), dtype=np.int64, count=len(vectors))
    with replacing(path) as file:
        np.savez(file, digests=text_digests(texts), numbers=numbers, sizes=sizes)


def _merge(out: Path, parts: Sequence[Path], width: int) -> None:
    """Write the store's arrays, sorted by digest; `width` is 0 where it depends on the text."""
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


def _joined(parts: Sequence[Path], name: str) -> NDArray[np.generic]:
    arrays = []
    for path in parts:
        with np.load(path, allow_pickle=False) as part:
            arrays.append(part[name])
    return np.concatenate(arrays)


def _save(path: Path, array: NDArray[np.generic]) -> None:
    with replacing(path) as file:
        np.save(file, array, allow_pickle=False)
