"""Reads and hashes files only if they are regular: opening a FIFO blocks, and reading a device may never end."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import IO

SMALL = 1 << 20
"""The most bytes of a file of names, hashes and settings. The largest one is the manifest, with 100 bytes per file."""
BLOCK = 1 << 20
"""The number of bytes that are read at once."""


class NotRegularError(OSError):
    """The path is not a regular file (a FIFO, a device, a link to itself), or the file is larger than allowed."""


def open_regular(path: Path) -> BufferedReader:
    """The file, open for reading. Raises NotRegularError without blocking if it is not regular, and OSError."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotRegularError(f"{path} is a link to itself, not a regular file") from error
        raise
    if not stat.S_ISREG(mode):  # checked before opening, because opening some devices has an effect
        raise NotRegularError(f"{path} is not a regular file")
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # in case it became a FIFO meanwhile
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise NotRegularError(f"{path} is not a regular file")
    return file


def read_regular(path: Path, most: int | None = None) -> bytes:
    """The content of a file. Raises as `open_regular` does, and NotRegularError for more than `most` bytes."""
    with open_regular(path) as file:
        content = file.read() if most is None else file.read(most + 1)
    if most is not None and len(content) > most:
        raise too_large(path, most)
    return content


def file_digest(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal digits. Raises as `open_regular` does."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_hashed(source: IO[bytes], target: IO[bytes]) -> str:
    """Copy the rest of a file to another; returns the SHA-256 of the copied bytes in hexadecimal digits."""
    digest = hashlib.sha256()
    while block := source.read(BLOCK):
        digest.update(block)
        target.write(block)
    return digest.hexdigest()


def too_large(place: Path | str, most: int) -> NotRegularError:
    """The error for a file that has more than `most` bytes."""
    return NotRegularError(f"{place} has more than {most} bytes")
