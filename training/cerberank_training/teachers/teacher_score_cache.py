"""Caches a teacher's scores on disk: one float per pair, `d = z1 - z0`, by a hash of the pair's texts.

    manifest.json (teacher, its revision, the data's hash; written first)    shard-00000.parquet (key, score) ...

For two classes `softmax(z / tau)[1] = sigmoid(d / tau)`, so one float is enough for every temperature. Shards are
written atomically. The cache is complete when it has all shards. It is bound to one teacher and to one set of texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from cerberank_models.checkpoint.atomic import write_atomically
from cerberank_models.checkpoint.bound import SHA256, Bound
from cerberank_models.checkpoint.regular import file_digest
from cerberank_models.encoding import Candidate
from cerberank_models.transformer import Count, Frozen
from cerberank_training.runs.run_data import Content
from cerberank_training.teachers.pair_keys import Keys, pair_keys

MANIFEST = "manifest.json"
IDENTITY = b"cerberank.data_sha256/revision"
"""The metadata key by which every shard names its cache, so that a shard copied from another cache is detected."""
SCHEMA = pa.schema([pa.field("key", pa.uint64(), nullable=False), pa.field("score", pa.float32(), nullable=False)])
Floats = NDArray[np.float32]


class ScoreCacheError(ValueError):
    """The folder is not a usable cache, or belongs to another teacher or other texts, as the message says."""


class MissingScoreError(ScoreCacheError):
    """The teacher never scored this pair; the message names it."""


class TeacherIdentity(Frozen):
    """Everything that determines a teacher's scores, apart from the texts."""

    name: str
    """A name for people. It is not compared, because the folder of a teacher may be moved."""
    revision: str
    """A hash of the teacher's files."""
    precision: str
    max_length: Count
    context: bool
    """True if the teacher reads the previous and the next sentence, which are then part of a pair's key."""


class CacheManifest(Frozen):
    """`manifest.json` of a cache."""

    format: Annotated[int, Field(ge=1, le=1)] = 1
    teacher: TeacherIdentity
    data: tuple[str, ...]
    """The sources of the texts, for people."""
    data_sha256: str
    pairs: Count
    shard_pairs: Count
    """The number of pairs in each shard but the last."""

    @property
    def shards(self) -> int:
        """The number of shards of the complete cache."""
        return -(-self.pairs // self.shard_pairs)

    def rows(self, shard: int) -> slice:
        """The range of pairs in a shard."""
        return slice(shard * self.shard_pairs, min((shard + 1) * self.shard_pairs, self.pairs))

    @property
    def identity(self) -> bytes:
        """The value of the metadata key IDENTITY in every shard of this cache."""
        return f"{self.data_sha256}/{self.teacher.revision}".encode()

    @property
    def bound(self) -> dict[str, Any]:
        """The settings that all calls which fill the cache must have in common."""
        teacher = self.teacher.model_dump(exclude={"name"})
        return {"teacher": teacher, "texts": {SHA256: {", ".join(self.data): self.data_sha256}}, "pairs": self.pairs}


class TeacherScoreCache:
    """The scores of a complete cache in memory, which takes 12 bytes a pair. A pair is found by binary search."""

    def __init__(self, manifest: CacheManifest, keys: Keys, scores: Floats, folder: Path = Path()) -> None:
        """Use keys [n] and scores [n] in any order. If a key occurs twice, its first score is used."""
        self.manifest = manifest
        self._folder = folder
        self._keys, first = np.unique(keys, return_index=True)
        self._scores = scores[first]

    @classmethod
    def open(cls, folder: Path) -> TeacherScoreCache:
        """Read every shard. Raises ScoreCacheError when one is missing, damaged or belongs to another cache."""
        manifest = read_manifest(folder)
        paths = [shard_path(folder, shard) for shard in range(manifest.shards)]
        if missing := sum(not path.is_file() for path in paths):
            raise ScoreCacheError(
                f"{folder} lacks {missing} of {len(paths)} shards: its scoring was not finished; "
                "run the same `cerberank data score` again"
            )
        tables = [_read_shard(path, manifest, shard) for shard, path in enumerate(paths)]
        keys, scores = (np.concatenate([table[name].to_numpy() for table in tables]) for name in ("key", "score"))
        return cls(manifest, keys, scores, folder)

    @property
    def teacher(self) -> TeacherIdentity:
        """The teacher that gave the scores."""
        return self.manifest.teacher

    def content(self) -> Content:
        """The identity of the scores: the teacher, its input, and the SHA-256 of every shard."""
        shards = [shard_path(self._folder, shard) for shard in range(self.manifest.shards)]
        digests = {path.name: file_digest(path) for path in shards}
        return self.teacher.model_dump(exclude={"name"}) | {SHA256: digests}

    def __len__(self) -> int:
        """The number of distinct pairs in the cache."""
        return len(self._keys)

    def scores(self, question: str, candidates: Sequence[Candidate]) -> Floats:
        """The logit differences [n] of one question's candidates; raises MissingScoreError for an unknown pair."""
        keys = pair_keys(question, candidates, context=self.teacher.context)
        rows, scored = self._look_up(keys)
        if not scored.all():
            text = candidates[int(np.argmin(scored))].text
            raise MissingScoreError(
                f"{self.teacher.name} never scored the candidate {text!r} of the question {question!r}: "
                f"the cache holds {', '.join(self.manifest.data)}"
            )
        return np.asarray(self._scores[rows])

    def knows(self, keys: Keys) -> NDArray[np.bool_]:
        """True for each of the keys [n] whose pair has a score; fast for keys in ascending order."""
        return self._look_up(keys)[1]

    def _look_up(self, keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The index where each key would be, and True for each key that is there."""
        rows = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return rows, self._keys[rows] == keys


class ScoreCacheWriter:
    """Fills a cache shard by shard. A lock prevents other writers of the folder while it is open."""

    def __init__(self, folder: Path, manifest: CacheManifest) -> None:
        """Create the cache, or open the unfinished one in the folder.

        Raises ScoreCacheError when another process is writing it, BoundError for another teacher or other texts.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = FileLock(folder / ".lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise ScoreCacheError(f"{folder} is being filled by another process") from None
        try:
            self.manifest = self._begin(manifest)
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        """Return the writer, whose constructor took the lock."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock, so that other processes can write."""
        self._lock.release()

    def pending(self) -> list[int]:
        """The numbers of the missing shards, in order."""
        return [shard for shard in range(self.manifest.shards) if not shard_path(self._folder, shard).is_file()]

    def take_over(self, other: Path) -> None:
        """Copy the shards that are missing here from another cache of the same teacher and texts.

        Raises ScoreCacheError for damaged shards and those of another size, BoundError for another teacher or other
        texts.
        """
        other_manifest = read_manifest(other)
        Bound(other, self.manifest.bound).refuse_other_than(other_manifest.bound)
        if other_manifest.shard_pairs != self.manifest.shard_pairs:
            raise ScoreCacheError(
                f"{other} has shards of {other_manifest.shard_pairs} pairs, {self._folder} of "
                f"{self.manifest.shard_pairs}: begin with --shard-pairs {other_manifest.shard_pairs}"
            )
        for shard in self.pending():
            path = shard_path(other, shard)
            if path.is_file():
                _read_shard(path, other_manifest, shard)
                write_atomically(shard_path(self._folder, shard), path.read_bytes())

    def write(self, shard: int, keys: Keys, scores: Floats) -> None:
        """Write one shard. Keys and scores must have the shard's number of pairs."""
        rows = self.manifest.rows(shard)
        if not len(keys) == len(scores) == rows.stop - rows.start:
            raise ValueError(f"shard {shard} takes {rows.stop - rows.start} pairs, not {len(keys)} and {len(scores)}")
        table = pa.table({"key": keys, "score": scores}, SCHEMA.with_metadata({IDENTITY: self.manifest.identity}))
        sink = pa.BufferOutputStream()
        # Hashes do not repeat, so dictionary encoding and compression would take time and save no space.
        pq.write_table(table, sink, compression="none", use_dictionary=False, write_page_checksum=True)
        write_atomically(shard_path(self._folder, shard), sink.getvalue().to_pybytes())

    def _begin(self, wanted: CacheManifest) -> CacheManifest:
        if not (self._folder / MANIFEST).exists():
            if any(self._folder.glob("shard-*.parquet")):
                raise ScoreCacheError(f"{self._folder} has shards but no {MANIFEST}, so their teacher is not known")
            write_atomically(self._folder / MANIFEST, wanted.model_dump_json(indent=2).encode() + b"\n")
            return wanted
        begun = read_manifest(self._folder)
        Bound(self._folder, wanted.bound).refuse_other_than(begun.bound)
        return begun


def read_manifest(folder: Path) -> CacheManifest:
    """The manifest of the cache `folder`; raises ScoreCacheError when there is none."""
    try:
        return CacheManifest.model_validate_json((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise ScoreCacheError(
            f"{folder} is not a score cache: it has no {MANIFEST}; `cerberank data score CACHE --teacher {folder} "
            "--data FORMAT:PATH` writes one if this is a model"
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "content"
        raise ScoreCacheError(f"{folder / MANIFEST}: {place}: {first['msg']}") from error


def shard_path(folder: Path, shard: int) -> Path:
    """The path of a shard."""
    return folder / f"shard-{shard:05d}.parquet"


def _read_shard(path: Path, manifest: CacheManifest, shard: int) -> pa.Table:
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except (OSError, pa.ArrowException) as error:
        raise ScoreCacheError(f"{path} cannot be read: {error}; delete it and score again") from error
    rows = manifest.rows(shard)
    if (
        not table.schema.equals(SCHEMA)
        or table.num_rows != rows.stop - rows.start
        or (table.schema.metadata or {}).get(IDENTITY) != manifest.identity
    ):
        raise ScoreCacheError(f"{path} does not belong to this cache; delete it and score again")
    return table
