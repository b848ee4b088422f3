"""Reads regular files alone: opening a FIFO waits for a writer, and a device never ends."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path


class NotRegularError(OSError):
    """A FIFO, a socket or a device is where a file should be."""


def open_regular(path: Path) -> BufferedReader:
    """The file, open for reading. Raises NotRegularError at once for anything that is no regular file, else OSError."""
    if not stat.S_ISREG(path.stat().st_mode):  # opening some devices already has an effect
        raise NotRegularError(f"{path} is no regular file")
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # it may have become a FIFO since
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise NotRegularError(f"{path} is no regular file")
    return file


def read_regular(path: Path) -> bytes:
    """The content of a file; raises as `open_regular` does."""
    with open_regular(path) as file:
        return file.read()
