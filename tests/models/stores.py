"""Damaged versions in a store, and an object store on local files."""

from __future__ import annotations

import io
import json
import os
import uuid
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem
from tools.versions import edit


def damage(model: Path, kind: str, version: str = "2") -> None:
    """Put something into a model's folder in a store that cannot be read; `kind` says which file becomes what."""
    file, _, what = kind.partition(" ")
    if file == "names":
        names = {"nul": "a\0b", "long": "a" * 300, "below": "manifest.json/x"}
        files = json.loads((model / version / "manifest.json").read_text())["files"]
        edit(model / version, files=files | {names[what]: "0" * 64})
        return
    path = model / "labels.json" if file == "labels" else model / version / "manifest.json"
    path.unlink()
    match what:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)
        case "large":
            with path.open("wb") as content:
                content.truncate(3 << 30)


DAMAGES = (
    *("names nul", "names long", "names below"),
    *("labels fifo", "labels folder", "labels loop", "labels large"),
    *("manifest fifo", "manifest folder", "manifest loop", "manifest large"),
)
"""The kinds of damage that `damage` does."""


class Objects(LocalFileSystem):
    """Local files with an object store's habits, for several processes: each appears whole, none can be renamed.

    Mode `x` decides when the object is put, as S3 does with If-None-Match.
    """

    protocol = "objects"

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **_: Any) -> Any:
        return _Put(Path(path), mode) if mode in {"wb", "xb"} else super()._open(path, mode)

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        with self.open(path, "wb") as file:
            file.write(value)

    def mv(self, *_: Any, **__: Any) -> None:
        """Rename, which a store must not count on: on objects it is a copy and a removal, which a crash can part."""
        raise AssertionError("objects have no rename")


class _Put(io.BytesIO):
    """An upload that becomes visible when it is closed."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__()
        self._path, self._exclusive = path, mode == "xb"

    def close(self) -> None:
        if self.closed:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        upload = self._path.with_name(f".{uuid.uuid4().hex}")
        upload.write_bytes(self.getvalue())
        super().close()
        if not self._exclusive:
            upload.replace(self._path)
            return
        try:
            os.link(upload, self._path)
        finally:
            upload.unlink()
