"""Arrow tables beside the data that they are made from, mapped: the system loads what is read, and drops it again when
memory is short.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from filelock import FileLock

from cerberank_models.checkpoint.atomic import replacing
from cerberank_training.data.question import DataError

SOURCE = b"cerberank_source"
"""The metadata key by which a table names the files that it was made from."""
BATCH_CHARACTERS = 1 << 24
"""The texts of a batch have at least so many characters: what writing holds in memory, and far from Arrow's 2 GB."""


def kept_batches(
    source: Path,
    batches: Iterator[Any],
    *,
    kind: str = "",
    layout: int,
    options: str = "",
    files: Sequence[Path] = (),
    most: int,
) -> list[Any]:
    """The record batches in memory where they take less than `most` bytes, else in a table beside the file or folder.

    The table of `source` is `SOURCE.arrow`, with the `kind` of its rows and a hash of its `options` before the ending
    where it has any. It is used as long as its `layout`, and the `files` that it is made from, or `source` alone, are
    the same; `batches`, which reads them, is not begun then. One process writes, others wait for it. Raises DataError
    when the folder cannot be written.
    """
    mark = f".{kind}" * bool(kind) + (f".{hashlib.sha256(options.encode()).hexdigest()[:8]}" if options else "")
    path, identity = source.with_name(f"{source.name}{mark}.arrow"), _identity(files or [source], layout)
    if _current(path, identity):
        return _Mapped(path)
    first: list[Any] = []
    for batch in batches:
        first.append(batch)
        if sum(each.nbytes for each in first) >= most:
            break
    else:
        return first
    try:
        with FileLock(path.with_name(f".{path.name}.lock")):
            if not _current(path, identity):
                _write(path, chain(_emptied(first), batches), identity)
    except PermissionError as error:
        raise DataError(
            f"{source} is too large to be held in memory, and its table cannot be written beside it: {error}"
        ) from error
    return _Mapped(path)


def _identity(files: Sequence[Path], layout: int) -> bytes:
    """A value that changes with one of the files, also when an older one takes its place."""
    statuses = [(status.st_size, status.st_mtime_ns) for file in files if file.is_file() and (status := file.stat())]
    return f"layout {layout}, {hashlib.sha256(repr(statuses).encode()).hexdigest()}".encode()


def _emptied(held: list[Any]) -> Iterator[Any]:
    """Each of the list, which gives it up."""
    while held:
        yield held.pop(0)


class _Mapped(list[Any]):
    """The record batches of a mapped table; another process that gets them maps the table itself."""

    def __init__(self, path: Path) -> None:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        super().__init__(reader.get_batch(number) for number in range(reader.num_record_batches))
        self._path = path

    def __reduce__(self) -> tuple[type[_Mapped], tuple[Path]]:
        return _Mapped, (self._path,)


def _current(path: Path, identity: bytes) -> bool:
    if not path.is_file():
        return False
    try:
        with pa.memory_map(str(path)) as file:
            return bool((pa.ipc.open_file(file).schema.metadata or {}).get(SOURCE) == identity)
    except pa.ArrowInvalid:
        return False


def _write(path: Path, batches: Iterable[Any], identity: bytes) -> None:
    """Write the batches, at least one; all have the first one's schema."""
    first = next(iterator := iter(batches))
    schema = first.schema.with_metadata({SOURCE: identity})
    with replacing(path) as file, pa.ipc.new_file(file, schema) as writer:
        for batch in chain([first], iterator):
            writer.write_batch(batch.cast(schema))
