"""The lock that a training process holds on its run's folder; the kernel releases it when the process dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".running.lock"
SECONDS = 1.0
"""Lock timeout in seconds; `is_running` also takes the lock, for an instant."""


@contextmanager
def running(folder: Path) -> Iterator[None]:
    """Hold the folder, in the first of torchrun's processes. Raises ValueError when another process trains in it."""
    if os.environ.get("RANK", "0") != "0":
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=SECONDS)
    except Timeout as error:
        raise ValueError(f"another process trains in {folder}") from error
    try:
        yield
    finally:
        lock.release()


def is_running(folder: Path) -> bool:
    """True if a process of this machine, or of one that shares the file system and its locks, trains in `folder`."""
    path = folder / LOCK
    if not path.is_file():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # a folder that this user may not write to: nobody can tell
        return False
