"""The texts of a large file by their ids. The file is mapped, and memory holds 16 bytes for each line."""

from __future__ import annotations

import gzip
import mmap
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import numpy as np

from cerberank_training.data.question import DataError, read_lines, reason

Parse = Callable[[int, str], tuple[str, str]]
"""Parses a line with its number into id and text. Raises DataError."""


class StoredLines(Mapping[str, str]):
    """Texts by id, which are read from the file on access. A file .gz is unpacked into memory; blank lines are none."""

    def __init__(self, path: Path, parse: Parse) -> None:
        """Read the file once. Raises DataError with file and line for a bad line and for a repeated id."""
        self._parse = parse
        keys, starts, start = list[bytes](), list[int](), 0
        self._content = _content(path)
        for number, line in read_lines(path, blank=True):
            if line.strip():
                keys.append(_key(parse(number, line)[0]))
                starts.append(start)
            start = self._content.find(b"\n", start) + 1
        hashed = np.frombuffer(b"".join(keys), dtype="<u8")
        self._order = np.argsort(hashed, kind="stable")
        self._keys = hashed[self._order]
        self._starts = np.asarray(starts, dtype=np.int64)
        if len(twice := np.flatnonzero(self._keys[1:] == self._keys[:-1])):
            row = int(self._order[twice[0] + 1])
            number, _ = next(islice(read_lines(path), row, None))
            raise DataError(f"{path}:{number}: the id {self._at(row)[0]!r} comes twice")

    def __getitem__(self, identifier: str) -> str:
        """The text with this id. Raises KeyError."""
        key = np.frombuffer(_key(identifier), dtype="<u8")[0]
        row = int(np.searchsorted(self._keys, key))
        if row == len(self._keys) or self._keys[row] != key:
            raise KeyError(identifier)
        return self._at(int(self._order[row]))[1]

    def __len__(self) -> int:
        """The number of texts."""
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        """The ids in the order of the file."""
        return (self._at(row)[0] for row in range(len(self)))

    def _at(self, row: int) -> tuple[str, str]:
        start = int(self._starts[row])
        stop = self._content.find(b"\n", start)
        line = self._content[start : stop if stop >= 0 else None].decode().removeprefix("\ufeff")
        return self._parse(row + 1, line.rstrip("\r\n"))


def _key(identifier: str) -> bytes:
    return blake2b(identifier.encode(errors="surrogatepass"), digest_size=8).digest()


def _content(path: Path) -> bytes | mmap.mmap:
    try:
        if path.suffix == ".gz":
            return gzip.decompress(path.read_bytes())
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, EOFError, ValueError) as error:  # ValueError for an empty file, which cannot be mapped
        raise DataError(f"{path}: {reason(error)}") from error
