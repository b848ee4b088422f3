"""The origin of a teacher's scores: the identity of a score cache, and the facts about the teacher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.bound import SHA256
from cerberank_training.runs.card import spec_name
from cerberank_training.runs.content import Content, file_digest
from cerberank_training.runs.record import read_record
from cerberank_training.teachers.scoring.hugging_face import revision_of
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache, shard_path


def cache_content(cache: TeacherScoreCache, folder: Path) -> Content:
    """The identity of the scores in `folder`: the teacher, its input, and the SHA-256 of every shard."""
    identity = cache.teacher.model_dump(exclude={"name"})
    shards = [shard_path(folder, shard) for shard in range(cache.manifest.shards)]
    return identity | {SHA256: {path.name: file_digest(path) for path in shards}}


def teacher_origin(cache: TeacherScoreCache) -> dict[str, Any]:
    """The teacher's name and revision, and its figure on its dev set if its folder still exists and records one."""
    teacher = cache.teacher
    folder = Path(teacher.name)
    told = {"name": folder.name, "revision": teacher.revision}
    record = read_record(folder)
    if record is None or not record.results or revision_of(str(folder)) != teacher.revision:
        return told
    best, questions = record.results["best"], record.results["questions"]
    return told | {"dev_map": best, "questions": questions, "dev": spec_name(record.free["names"]["dev"])}
