from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cerberank_models.checkpoint.atomic import (
    appearing_folder,
    remove_remains,
    replacing,
    write_atomically,
    write_json,
)


def test_a_file_is_replaced_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    """A file is replaced, also over a killed writer's remains or a FIFO in their place, and no partial file stays."""
    partial = tmp_path / ".file.partial"
    for content, remains in ((b"first", Path.touch), (b"second", os.mkfifo)):
        remains(partial)
        write_atomically(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_folder_appears_only_when_its_block_ends(tmp_path: Path) -> None:
    """Until the block ends the folder is hidden; then other users may read it."""
    target = tmp_path / "deep" / "folder"
    with appearing_folder(target) as partial:
        (partial / "sub").mkdir()
        (partial / "sub" / "file").write_text("x")
        assert not target.exists()
        assert partial.name.startswith(".folder.")
    assert (target / "sub" / "file").read_text() == "x"
    assert target.stat().st_mode & 0o777 == 0o755
    assert list(target.parent.iterdir()) == [target]


def test_a_folder_that_another_process_made_meanwhile_stays(tmp_path: Path) -> None:
    """The later process gets an error, and its files are removed."""
    theirs = tmp_path / "folder" / "theirs"

    def slower() -> None:
        with appearing_folder(theirs.parent) as partial:
            (partial / "mine").touch()
            theirs.parent.mkdir()
            theirs.touch()

    with pytest.raises(FileExistsError):
        slower()
    assert [item.relative_to(tmp_path).as_posix() for item in tmp_path.rglob("*")] == ["folder", "folder/theirs"]


def interrupted(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    """An exception in the block keeps the old content and removes the partial file."""
    path = tmp_path / "out.json"
    write_json(path, {"a": 1})
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_made_and_others_may_read(tmp_path: Path) -> None:
    """Missing folders are created, and other users may read the file."""
    write_json(tmp_path / "a" / "b.json", [])
    assert (tmp_path / "a" / "b.json").stat().st_mode & 0o777 == 0o644


def test_only_old_remains_are_removed_whatever_the_clock_of_this_machine_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose clock is 25 hours ahead leaves a push of a minute ago alone, as their ages are the store's."""
    young, old = tmp_path / ".2.young", tmp_path / ".1.old"
    for folder, age in ((young, 60), (old, 25 * 3600)):
        folder.mkdir()
        begun = tmp_path.stat().st_mtime - age
        os.utime(folder, (begun, begun))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 25 * 3600)
    remove_remains(tmp_path, older_than=24 * 3600.0)
    assert list(tmp_path.iterdir()) == [young]
