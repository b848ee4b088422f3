"""Files that appear whole or not at all: written beside, flushed to the disk, renamed."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Give `path` this content; readers, and a machine that comes back after a crash, see the old or the new.

    One writer at a time: the caller holds a lock. What a killed writer leaves is overwritten by the next one.
    """
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    flush_folder(path.parent)


def flush_folder(path: Path) -> None:
    """Make the folder's names, as they are now, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
