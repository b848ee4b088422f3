"""A large body in an anonymous file in memory, which another process can read by its descriptor."""

from __future__ import annotations

import os
import tempfile
from typing import IO

LARGE_BYTES = 1024 * 1024
"""Bodies beyond this size (some thousands of candidates) are parsed in another process; for smaller ones the round trip
would take longer than it saves."""


class LargeBody:
    """Bytes in an anonymous file, which the system frees with its last descriptor, even after a crash."""

    def __init__(self) -> None:
        """The body is empty at first. Raises OSError when the system provides no file."""
        self._file = _nameless()
        self._size = 0

    def __len__(self) -> int:
        """Bytes written."""
        return self._size

    def write(self, piece: bytes) -> None:
        """Append `piece` without holding the GIL. Raises OSError when there is no room."""
        left = memoryview(piece)
        while left:
            left = left[self._file.write(left) :]
        self._size += len(piece)

    def descriptor(self) -> int:
        """A duplicate of the file's descriptor; the caller closes it. Raises OSError when none is left."""
        return os.dup(self._file.fileno())

    def close(self) -> None:
        """Close the file; the memory is freed when no other descriptor is open."""
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
