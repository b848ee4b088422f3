"""Files are read; anything else is refused at once instead of waited for."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from cerberank_models.checkpoint.folder import CheckpointError, read_checkpoint
from cerberank_models.checkpoint.regular import NotRegularError, open_regular, read_regular


def test_a_file_is_read(tmp_path: Path) -> None:
    """Also through a link, which a checkpoint's own check refuses."""
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file") == read_regular(tmp_path / "link") == b"content"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "loop", "device"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A FIFO without a writer would be waited for, for ever."""
    place = tmp_path / "place"
    with socket.socket(socket.AF_UNIX) as server:
        match kind:
            case "fifo":
                os.mkfifo(place)
            case "socket":
                server.bind(os.path.relpath(place))
            case "folder":
                place.mkdir()
            case "loop":
                place.symlink_to(place.name)
            case _:
                place = Path(os.devnull)
        with pytest.raises(NotRegularError, match="not a regular file"):
            open_regular(place)


@pytest.mark.parametrize("file", ["manifest.json", "golden.jsonl", "onnx/int8/stage-0.onnx", "more"])
def test_a_checkpoint_with_a_fifo_is_refused(tiny_copy: Path, file: str) -> None:
    """Whichever file it takes the place of."""
    (tiny_copy / file).unlink(missing_ok=True)
    os.mkfifo(tiny_copy / file)
    with pytest.raises(CheckpointError):
        read_checkpoint(tiny_copy)
