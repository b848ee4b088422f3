"""The folder of a run: it can be written, a full disk is reported in one line, and one process at a time trains in it.

A training process holds a lock on the folder, which the kernel releases when the process ends.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from safetensors import SafetensorError

LEAST_FREE = 1 << 20
"""If fewer bytes are free, the error of a library while writing is taken for a full disk."""
LOCK = ".running.lock"
SECONDS = 1.0
"""The timeout of the lock. It is above 0 because `is_running` also holds the lock for a moment."""


def check_writable(out: Path) -> None:
    """Raise OSError, which names the option, if no file can be written in `out` or its nearest existing parent."""
    nearest = out.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        raise NotADirectoryError(f"--out {out}: {nearest} is a file, not a folder")
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise OSError(f"--out {out} cannot be written: {error.strerror}") from error


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turn the errors that libraries raise in the block when the disk is full into OSError, which names the folder."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        cause = _cause(error)
        if cause is None and (isinstance(error, OSError) or shutil.disk_usage(_there(out)).free > LEAST_FREE):
            raise
        reason = cause.strerror if cause else "no space left on the disk"
        raise OSError(f"--out {out} could not be written: {reason}; make room and repeat the command") from error


@contextmanager
def running(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder. Raises ValueError when another process trains in the folder."""
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


def _cause(error: BaseException | None) -> OSError | None:
    """The error of a full disk in the chain of causes; None if there is none."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return error
        error = error.__cause__ or error.__context__
    return None


def _there(out: Path) -> Path:
    while not out.exists():
        out = out.absolute().parent
    return out
