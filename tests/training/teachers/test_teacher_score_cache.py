from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from cerberank_models.checkpoint.bound import BoundError
from cerberank_models.encoding import Candidate
from cerberank_training.teachers.pair_keys import data_digest, pair_keys
from cerberank_training.teachers.teacher_score_cache import (
    CacheManifest,
    MissingScoreError,
    ScoreCacheError,
    ScoreCacheWriter,
    TeacherIdentity,
    TeacherScoreCache,
)

TEACHER = TeacherIdentity(name="wise", revision="a" * 64, precision="torch/fp32", max_length=128, context=False)
CANDIDATES = [Candidate(text=f"candidate {index}") for index in range(7)]
KEYS = pair_keys("why ?", CANDIDATES, context=False)
SCORES = np.linspace(-3, 3, 7, dtype=np.float32)


def manifest(**changes: object) -> CacheManifest:
    fields = {
        "teacher": TEACHER,
        "data": ("jsonl:a",),
        "data_sha256": data_digest(KEYS),
        "pairs": len(KEYS),
        "shard_pairs": 3,
    }
    return CacheManifest.model_validate(fields | changes)


def fill(folder: Path, wanted: CacheManifest | None = None) -> Path:
    with ScoreCacheWriter(folder, wanted or manifest()) as writer:
        for shard in writer.pending():
            rows = writer.manifest.rows(shard)
            writer.write(shard, KEYS[rows], SCORES[rows])
    return folder


def test_scores_are_found_by_text_in_any_order(tmp_path: Path) -> None:
    """Three shards, the last one short; context does not matter to a teacher that does not read it."""
    cache = TeacherScoreCache.open(fill(tmp_path / "cache"))
    asked = [CANDIDATES[index] for index in (6, 0, 3, 3)]
    got = cache.scores("why ?", [Candidate(text=one.text, previous="other") for one in asked])
    assert got.tolist() == SCORES[[6, 0, 3, 3]].tolist()
    assert got.dtype == np.float32
    assert (len(cache), cache.teacher) == (7, TEACHER)
    assert cache.scores("why ?", []).shape == (0,)


def test_a_pair_that_was_never_scored_is_named(tmp_path: Path) -> None:
    """The error names question, candidate and data; never is another pair's score returned."""
    cache = TeacherScoreCache.open(fill(tmp_path / "cache"))
    with pytest.raises(MissingScoreError, match=r"^wise never scored .*'new'.*'why \?'.*jsonl:a"):
        cache.scores("why ?", [CANDIDATES[0], Candidate(text="new")])


def test_a_shard_is_whole_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full before the second shard is safe: a further call scores it."""
    with ScoreCacheWriter(tmp_path, manifest()) as writer:
        writer.write(0, KEYS[:3], SCORES[:3])
        with monkeypatch.context() as full:
            full.setattr(os, "fsync", Mock(side_effect=OSError("No space left on device")))
            with pytest.raises(OSError, match="No space"):
                writer.write(1, KEYS[3:6], SCORES[3:6])
        assert list(writer.pending()) == [1, 2]


def test_of_a_pair_that_occurs_twice_the_first_score_counts(tmp_path: Path) -> None:
    """For a repeated pair the first score is used, in whichever shard it is."""
    cache = TeacherScoreCache(manifest(), np.concatenate([KEYS, KEYS[:1]]), np.append(SCORES, np.float32(9)))
    assert cache.scores("why ?", CANDIDATES[:1]).tolist() == [-3.0]


def test_a_cache_of_another_teacher_or_of_other_texts_is_refused(tmp_path: Path) -> None:
    """Each property that scores depend on is named; the cache is unchanged."""
    folder = fill(tmp_path / "cache")
    changes = {"revision": "b" * 64, "precision": "torch/bf16", "max_length": 64, "context": True}
    other = manifest(
        teacher=TEACHER.model_copy(update=changes), data=("jsonl:b",), data_sha256="0" * 64, pairs=len(KEYS) + 1
    )
    with pytest.raises(BoundError) as refused:
        ScoreCacheWriter(folder, other)
    for message in (
        f"teacher.revision '{'a' * 64}', not ",
        "teacher.precision 'torch/fp32', not 'torch/bf16'",
        "teacher.max_length 128, not 64",
        "teacher.context False, not True",
        "pairs 7, not 8",
    ):
        assert message in str(refused.value)
    assert re.search("content of texts .*jsonl:a .*, now absent; jsonl:b absent", str(refused.value))
    assert len(TeacherScoreCache.open(folder)) == 7


def test_going_on_needs_neither_the_same_name_nor_the_same_shard_size(tmp_path: Path) -> None:
    """A resumed cache accepts a moved teacher and keeps its own shard size."""
    folder = fill(tmp_path / "cache")
    (folder / "shard-00001.parquet").unlink()
    moved = TEACHER.model_copy(update={"name": "moved"})
    with ScoreCacheWriter(folder, manifest(teacher=moved, shard_pairs=100)) as writer:
        assert writer.pending() == [1]
        assert writer.manifest.shard_pairs == 3


def test_one_process_fills_a_cache_at_a_time(tmp_path: Path) -> None:
    """A second writer is refused at once, and may write when the first has ended."""
    with (
        ScoreCacheWriter(tmp_path / "cache", manifest()),
        pytest.raises(ScoreCacheError, match="filled by another process"),
    ):
        ScoreCacheWriter(tmp_path / "cache", manifest())
    fill(tmp_path / "cache")


def test_a_shard_takes_its_own_number_of_pairs(tmp_path: Path) -> None:
    """Fewer scores than pairs would shift every later one."""
    with ScoreCacheWriter(tmp_path / "cache", manifest()) as writer, pytest.raises(ValueError, match="takes 3 pairs"):
        writer.write(0, KEYS[:3], SCORES[:2])


def _damage_byte(folder: Path) -> None:
    content = bytearray((folder / "shard-00001.parquet").read_bytes())
    content[content.index(SCORES[3].tobytes())] ^= 1
    (folder / "shard-00001.parquet").write_bytes(content)


def _foreign_shard(folder: Path) -> None:
    other = fill(folder.with_name("other"), manifest(teacher=TEACHER.model_copy(update={"revision": "b" * 64})))
    shutil.copy(other / "shard-00001.parquet", folder / "shard-00001.parquet")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "shard-00001.parquet").unlink(), "lacks 1 of 3 shards"),
        (lambda folder: (folder / "shard-00001.parquet").write_bytes(b"PAR1"), "shard-00001.parquet cannot be read"),
        (_damage_byte, "shard-00001.parquet cannot be read"),
        (_foreign_shard, "shard-00001.parquet does not belong"),
        (lambda folder: shutil.copy(folder / "shard-00002.parquet", folder / "shard-00001.parquet"), "does not belong"),
        (lambda folder: (folder / "manifest.json").unlink(), "not a score cache"),
        (lambda folder: (folder / "manifest.json").write_text('{"format": 2}'), "manifest.json: format"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest.json: content"),
    ],
)
def test_a_damaged_cache_is_refused(tmp_path: Path, damage: object, message: str) -> None:
    """Missing, cut, flipped by one bit, or of another cache: the file is named."""
    folder = fill(tmp_path / "cache")
    damage(folder)  # type: ignore[operator]
    with pytest.raises(ScoreCacheError, match=message):
        TeacherScoreCache.open(folder)


def test_shards_without_a_manifest_are_nobodys(tmp_path: Path) -> None:
    """Shards without a manifest are neither used nor overwritten."""
    folder = fill(tmp_path / "cache")
    (folder / "manifest.json").unlink()
    with pytest.raises(ScoreCacheError, match="their teacher is not known"):
        ScoreCacheWriter(folder, manifest())


def test_scores_are_known_by_their_bytes(tmp_path: Path) -> None:
    """A cache of the same teacher, texts and scores is the same wherever it lies."""
    one, two = fill(tmp_path / "one"), fill(tmp_path / "two")
    contents = [TeacherScoreCache.open(folder).content() for folder in (one, two)]
    assert contents[0] == contents[1]
    assert contents[0]["revision"] == "a" * 64
    assert [len(digest) for digest in contents[0]["sha256"].values()] == [64, 64, 64]
