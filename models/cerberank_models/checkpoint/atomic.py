"""Files and folders that appear whole or not at all: written beside, flushed to the disk, renamed."""

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the content of `path`; readers, also after a crash of the machine, see either the old or the new content.

    One writer at a time: the caller holds a lock. What a killed writer leaves is removed by the next one.
    """
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    with partial.open("xb") as file:  # a FIFO of this name would be waited for
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    flush_folder(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write in place of `path`; an exception in the block leaves `path` as it was and nothing beside it."""
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
    """Write `content` in place of `path`."""
    with replacing(path) as file:
        file.write(content)


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON in place of `path`; raises ValueError for a number that JSON cannot hold."""
    write_bytes(path, json.dumps(content, indent=2, allow_nan=False).encode() + b"\n")


@contextmanager
def appearing_folder(path: Path) -> Iterator[Path]:
    """A hidden folder beside `path` to write into, which becomes `path` when the block ends.

    The files in it must have been flushed by their writer. Raises FileExistsError when `path` exists, also when
    another process created it meanwhile; after any error nothing is left behind. A killed process leaves a folder
    named `.<name of path>.<random>`.
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
    """Remove what killed processes left in `folder` while they wrote the folder `name` of it (None: any).

    Only remains that are older than so many seconds: a younger one may belong to a process that is still writing.
    """
    for item in folder.glob(f".{'*' if name is None else glob.escape(name)}.*"):
        if item.is_dir() and not item.is_symlink() and time.time() - item.stat().st_mtime >= older_than:
            shutil.rmtree(item, ignore_errors=True)


def flush_folder(path: Path) -> None:
    """Flush the folder's entries to the disk, so that they survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
