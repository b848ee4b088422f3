"""Folders of per-question files are read as systems, and what could not be compared is refused with its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training.evaluation.systems.systems import write_system

from cerberank_training.data import DataError
from cerberank_training.evaluation.systems.folders import read_systems


def test_systems_are_named_by_their_folders_and_sets_by_their_files(tmp_path: Path) -> None:
    """Systems in the given order, sets by name; other files do not matter."""
    folders = [write_system(tmp_path / name, 1.0, {"b": 2, "a": 3}) for name in ("z", "y")]
    (folders[0] / "notes.txt").write_text("")
    read = read_systems(folders)
    assert {system: {name: len(run) for name, (run,) in sets.items()} for system, sets in read.items()} == {
        "z": {"a": 3, "b": 2},
        "y": {"a": 3, "b": 2},
    }
    assert list(read) == ["z", "y"]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    """A set that is missing, other questions, no file, and two folders of one name."""
    one = write_system(tmp_path / "one", 1.0, {"a": 3, "b": 2})
    write_system(tmp_path / "two", 1.0, {"a": 3})
    write_system(tmp_path / "three", 1.0, {"a": 3, "b": 1})
    write_system(tmp_path / "other" / "one", 1.0, {"a": 3, "b": 2})
    (tmp_path / "none").mkdir()
    for name, message in (
        ("two", r"two lacks b\.jsonl, a set that other systems have"),
        ("three", r"b\.jsonl and .*three.b\.jsonl are not over the same questions"),
        ("none", r"none holds no per-question file"),
        ("other/one", "two are the same"),
    ):
        with pytest.raises(DataError, match=message):
            read_systems([one, tmp_path / name])
    with pytest.raises(DataError, match=r"a\.jsonl:1: no ranking 'exit 1'"):
        read_systems([one], ranking="exit 1")


def test_a_folder_of_folders_is_a_system_of_several_runs(tmp_path: Path) -> None:
    """Each run needs every set; folders beside a system's own files are not runs."""
    for seed in (1, 2):
        write_system(tmp_path / "ours" / str(seed), 1.0, {"a": 3, "b": 2}, seed=seed)
    other = write_system(tmp_path / "other", 1.0, {"a": 3, "b": 2})
    write_system(other / "golden", 1.0, {"c": 1})
    read = read_systems([tmp_path / "ours", other])
    assert {(system, name): len(runs) for system, sets in read.items() for name, runs in sets.items()} == {
        ("ours", "a"): 2,
        ("ours", "b"): 2,
        ("other", "a"): 1,
        ("other", "b"): 1,
    }
    (tmp_path / "ours" / "2" / "b.jsonl").unlink()
    with pytest.raises(DataError, match=r"ours.2 lacks b\.jsonl"):
        read_systems([tmp_path / "ours", other])
