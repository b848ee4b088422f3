"""Mapped Arrow tables beside their data: the system loads parts on access, and frees them if memory is short."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from filelock import FileLock

from cerberank_models.checkpoint.atomic import replacing
from cerberank_training.data.question import DataError

ItemT = TypeVar("ItemT")
SOURCE = b"cerberank_source"
"""The metadata key for the identity of the files that a table was made from."""
BATCH_CHARACTERS = 1 << 24
"""The least number of characters in a batch, which is in memory while it is written; Arrow's limit is 2 GB."""


def grouped(items: Iterable[ItemT], characters: Callable[[ItemT], int]) -> Iterator[list[ItemT]]:
    """Lists of consecutive items with `BATCH_CHARACTERS` characters together; only one list is held at a time."""
    pending: list[ItemT] = []
    size = 0
    for item in items:
        pending.append(item)
        size += characters(item)
        if size >= BATCH_CHARACTERS:
            yield pending
            pending, size = [], 0
    if pending:
        yield pending


def stored_batches(
    source: Path,
    batches: Iterator[Any],
    *,
    kind: str = "",
    layout: int,
    options: str = "",
    files: Sequence[Path] = (),
    most: int,
) -> list[Any]:
    """The record batches in memory if they take less than `most` bytes, and else in a table beside the file or folder.

    The table of `source` is `SOURCE.arrow`; before the ending stand the `kind` of rows and a hash of the `options`, if
    there are any. An existing table is used, without reading `batches`, if its `layout` is the same and `files` (or
    `source`) have not changed. One process writes the table, and others wait for it. Raises DataError when the folder
    cannot be written.
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
    """A value that changes if one of the files changes, also if an older file replaces it."""
    statuses = [(status.st_size, status.st_mtime_ns) for file in files if file.is_file() and (status := file.stat())]
    return f"layout {layout}, {hashlib.sha256(repr(statuses).encode()).hexdigest()}".encode()


def _emptied(held: list[Any]) -> Iterator[Any]:
    """Yield the items of the list, and remove each from it."""
    while held:
        yield held.pop(0)


class _Mapped(list[Any]):
    """The record batches of a mapped table. If they are sent to another process, it maps the table itself."""

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
    """Write one or more batches, which all have the schema of the first."""
    first = next(iterator := iter(batches))
    schema = first.schema.with_metadata({SOURCE: identity})
    with replacing(path) as file, pa.ipc.new_file(file, schema) as writer:
        for batch in chain([first], iterator):
            writer.write_batch(batch.cast(schema))
