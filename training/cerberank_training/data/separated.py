"""Reads the fields of files whose columns are separated by commas or tabs."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from cerberank_training.data.question import DataError, read_lines

LONGEST = (1 << 31) - 1
"""The largest length of a field in characters, which fits a C long on every system. Python's default is 131,072."""


def read_fields(path: Path, dialect: type[csv.Dialect] = csv.excel) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row, with the number of its first line; empty lines are skipped.

    Raises DataError with file and line for quotation marks that do not fit.
    """
    csv.field_size_limit(LONGEST)  # the limit belongs to the module; a reader cannot have one of its own
    lines = (f"{line}\n" for _, line in read_lines(path, blank=True))
    reader = csv.reader(lines, dialect=dialect, strict=True)
    start = 1
    try:
        for fields in reader:
            if fields:
                yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{start}: {error}") from error
