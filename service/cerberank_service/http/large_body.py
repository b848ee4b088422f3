"""A large body on its way: in memory outside of Python's, where another process reads it without a way through here."""

from __future__ import annotations

import os
import tempfile
from typing import IO

LARGE_BYTES = 1024 * 1024
"""Some thousands of candidates; for less, the way to another process and back is not worth it."""


class LargeBody:
    """Bytes in a file without a name, gone with its last descriptor, however the service ends."""

    def __init__(self) -> None:
        """Empty. Raises OSError when the system gives no file."""
        self._file = _nameless()
        self._size = 0

    def __len__(self) -> int:
        """Bytes written."""
        return self._size

    def write(self, piece: bytes) -> None:
        """Append; Python's lock is not held meanwhile. Raises OSError when there is no room."""
        left = memoryview(piece)
        while left:
            left = left[self._file.write(left) :]
        self._size += len(piece)

    def descriptor(self) -> int:
        """One more descriptor of the file, which is the caller's to close. Raises OSError when there is none."""
        return os.dup(self._file.fileno())

    def close(self) -> None:
        """Give the memory back, as far as no descriptor is left elsewhere."""
        self._file.close()


def read_descriptor(descriptor: int) -> bytes:
    """All bytes of a `LargeBody`; the descriptor stays open."""
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        file.seek(0)
        return file.read()


def _nameless() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("large-body"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
