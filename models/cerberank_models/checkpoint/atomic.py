"""Writes files and folders that appear whole or not at all: under another name, flushed to the disk, then renamed."""

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the content of `path`. Readers see the old or the new content, also after a crash of the machine.

    The caller must hold a lock, because only one process may write at a time. The next write removes the remains of a
    killed one.
    """
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    with partial.open("xb") as file:  # mode "x", because opening an existing FIFO would block
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    flush_folder(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that replaces `path` when the block ends. After an exception `path` is as before, and no file is left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o644)  # with mkstemp's 0600 other users could not read the file
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to a file that replaces `path`."""
    with replacing(path) as file:
        file.write(content)


def write_json(path: Path, content: Any) -> None:
    """Replace `path` by `content` as indented JSON. Raises ValueError for NaN and infinity, which JSON cannot hold."""
    write_bytes(path, json.dumps(content, indent=2, allow_nan=False).encode() + b"\n")


@contextmanager
def appearing_folder(path: Path) -> Iterator[Path]:
    """A hidden folder beside `path` to write into, which is renamed to `path` when the block ends.

    The caller must have flushed the files in it. Raises FileExistsError if `path` exists, also if another process
    created it meanwhile. After any error nothing is left behind; a killed process leaves a folder named
    `.<name of path>.<random>`.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        partial.chmod(0o755)  # with mkdtemp's 0700 the service's user could not read the folder
        yield partial
        for folder in [partial, *(item for item in partial.rglob("*") if item.is_dir())]:
            flush_folder(folder)
        try:
            partial.rename(path)
        except OSError as error:
            raise FileExistsError(f"{path} exists") if path.exists() else error from None
        flush_folder(path.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove_remains(folder: Path, name: str | None = None, *, older_than: float = 0.0) -> None:
    """Remove the hidden folders that killed processes left in `folder` while they wrote its folder `name` (None: any).

    Only remains older than `older_than` seconds are removed, because a process may still write to younger ones. The
    present time is that of the file system, as the times of the folders are: the clocks of machines differ.
    """
    hidden = folder.glob(f".{'*' if name is None else glob.escape(name)}.*")
    remains = [item for item in hidden if item.is_dir() and not item.is_symlink()]
    if not remains:
        return
    with tempfile.TemporaryFile(dir=folder) as file:
        now = os.fstat(file.fileno()).st_mtime
    for item in remains:
        with suppress(FileNotFoundError):  # its process has just finished it
            if now - item.stat().st_mtime >= older_than:
                shutil.rmtree(item, ignore_errors=True)


def flush_folder(path: Path) -> None:
    """Flush the folder's entries to the disk, so that they survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
