"""The lock that a training process holds on its run's folder; the kernel releases it when the process ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from cerberank_training.runs.launched import is_first_process

LOCK = ".running.lock"
SECONDS = 1.0
"""The timeout of the lock. It is above 0 because `is_running` also holds the lock for a moment."""


@contextmanager
def running(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder, in the first of torchrun's processes only.

    Raises ValueError when another process trains in the folder.
    """
    if not is_first_process():
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
    """True if a process trains in `folder`, on this machine or on another that shares the file system and its locks."""
    path = folder / LOCK
    if not path.is_file():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # this user may not write to the folder, so the lock cannot be tried
        return False
