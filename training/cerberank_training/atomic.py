"""Files that are there whole or not at all: written beside their place, flushed, then renamed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


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
        partial.chmod(0o644)  # mkstemp's 0600 would hide the file from the user's colleagues
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
