"""The facts about the teachers behind score caches."""

from __future__ import annotations

from pathlib import Path

from tests.program import program
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl, teacher_scores

from cerberank_training.teachers.origin import cache_content, teacher_origin
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache


def test_a_teachers_own_figure_is_told_while_its_folder_is_the_one_that_scored(tmp_path: Path) -> None:
    """With the set that it is of; not for a teacher that has changed since, nor for one that is gone."""
    save_cross_encoder("bert", tmp_path / "base")
    data, teacher, made = jsonl(tmp_path), tmp_path / "teacher", tmp_path / "made"
    arguments = ["--base", str(tmp_path / "base"), "--train", data, "--dev", dev_jsonl(tmp_path), "--out", str(teacher)]
    common = ["--device", "cpu", "--precision", "fp32", "--max-length", "32", "--questions-per-step", "2"]
    assert program("train teach")([*arguments, *common, "--steps", "2"]) == 0
    assert program("data score")([str(made), "--teacher", str(teacher), "--data", data]) == 0
    cache = TeacherScoreCache.open(made)
    told = teacher_origin(cache)
    assert (told["name"], told["dev"], told["questions"]) == ("teacher", "jsonl:dev.jsonl", 5)
    assert 0 < told["dev_map"] <= 100
    (teacher / "config.json").write_text((teacher / "config.json").read_text() + " ")
    assert teacher_origin(cache) == {"name": "teacher", "revision": cache.teacher.revision}


def test_scores_are_known_by_their_bytes(tmp_path: Path) -> None:
    """A cache of the same teacher, texts and scores is the same wherever it lies."""
    one, two = teacher_scores(tmp_path / "one"), teacher_scores(tmp_path / "two")
    contents = [cache_content(TeacherScoreCache.open(folder), folder) for folder in (one, two)]
    assert contents[0] == contents[1]
    assert contents[0]["revision"] == "a" * 64
    assert len(contents[0]["sha256"]["shard-00000.parquet"]) == 64
