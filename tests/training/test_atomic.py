from __future__ import annotations

from pathlib import Path

import pytest

from cerberank_training.atomic import replacing, write_json


def interrupted(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    """Whatever was written before the exception."""
    path = tmp_path / "out.json"
    write_json(path, {"a": 1})
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_made_and_others_may_read(tmp_path: Path) -> None:
    """A colleague, or a web server."""
    write_json(tmp_path / "a" / "b.json", [])
    assert (tmp_path / "a" / "b.json").stat().st_mode & 0o777 == 0o644
