"""Reads tables: CSV, TSV, JSON lines, Parquet, and data sets of the library `datasets` (a folder or a name on the hub).

    csv:FILE  tsv:FILE  rows:FILE  parquet:FILE_OR_FOLDER  datasets:FOLDER_OR_NAME     with `?question=NAME&...`

Options name the columns (`columns.py`). `names` gives the column names of a CSV or TSV file without a header. `split`,
`config` and `revision` choose the part of a data set.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cerberank_models.output import installed_by
from cerberank_training.data.format import Format
from cerberank_training.data.formats.columns import ColumnOptions, Columns
from cerberank_training.data.formats.rows import Row, Rows
from cerberank_training.data.notes import Notes, ignored
from cerberank_training.data.question import DataError, Question, read_json_lines, reason
from cerberank_training.data.separated import read_fields
from cerberank_training.data.source_files import files_of

LARGE = 256 << 20
"""From this size of a file in bytes on, the pairs of a question must be adjacent; in smaller files they are
collected."""


class DelimitedOptions(ColumnOptions):
    """The options of CSV and TSV files."""

    names: str = ""
    """The names of the columns, separated by commas, for a file without a header."""


class DatasetOptions(ColumnOptions):
    """The options of data sets."""

    split: str = ""
    config: str = ""
    """The name of a configuration on the hub."""
    revision: str = ""
    """A commit, tag or branch on the hub."""


class _Tabs(csv.excel_tab):
    """Tabs alone separate; quotation marks have no special meaning."""

    quoting = csv.QUOTE_NONE


def _read_json_rows(file: Path, options: ColumnOptions, notes: Notes) -> Iterator[Question]:
    """Yield the questions of JSON lines, whose keys are the columns."""
    rows = _objects(file)
    first = next(rows, None)
    if first is None:
        raise DataError(f"{file} holds no row")
    columns = Columns.of(list(first[1]), options, first[0])
    used = set(columns.used)

    def checked() -> Iterator[Row]:
        for place, row in chain([first], rows):
            if missing := used - row.keys():
                raise DataError(f"{place}: the row has no {min(missing)!r}")
            notes.update(ignored(name for name in row if name not in used))
            yield place, row

    return Rows(checked(), columns, str(file), notes, file.stat().st_size >= LARGE).questions()


def _read_parquet(place: Path, options: ColumnOptions, notes: Notes) -> Iterator[Question]:
    """Yield the questions of a Parquet file, or of all Parquet files of a folder in the order of their names."""
    files = _parquet_files(place, options)
    if not files:
        raise DataError(f"{place} holds no Parquet file")
    columns = Columns.of(_schema(files[0]).names, options, str(files[0]))
    together = sum(file.stat().st_size for file in files) >= LARGE
    rows = chain.from_iterable(_parquet(file, columns, notes) for file in files)
    return Rows(rows, columns, str(place), notes, together).questions()


def _read_datasets(place: Path, options: DatasetOptions, notes: Notes) -> Iterator[Question]:
    """Yield the questions of a folder that `save_to_disk` wrote, or of a data set on the hub."""
    table = _dataset(place, options)
    columns = Columns.of(table.column_names, options, str(place))
    notes.update(ignored(columns.unused(table.column_names), table.num_rows))
    batches = table.select_columns(columns.used).with_format("arrow").iter(1024)
    rows = _numbered(str(place), (batch.to_pylist() for batch in batches))
    return Rows(rows, columns, str(place), notes, (table.data.nbytes or 0) >= LARGE).questions()


def _dataset_files(place: Path, options: DatasetOptions) -> list[Path]:
    """The files of the folder, or of the chosen split, without cached files of the library."""
    return [file for file in files_of(place / options.split) if not file.name.startswith((".", "cache-"))]


def _delimited(
    file: Path, options: DelimitedOptions, notes: Notes, *, dialect: type[csv.Dialect], hint: str
) -> Iterator[Question]:
    """Yield the questions of a file with columns; `hint` says what separates them."""
    rows = read_fields(file, dialect)
    names = options.names.split(",") if options.names else next(rows, (1, []))[1]
    if len(set(names)) < len(names) or not names:
        raise DataError(f"{file}:1: expected the names of columns, each once")
    if len(names) == 1 and not options.names:
        raise DataError(f"{file}:1: there is one column alone; {hint}")
    columns = Columns.of(names, options, f"{file}:1")

    def named() -> Iterator[Row]:
        unused, count = columns.unused(names), 0
        for number, fields in rows:
            if len(fields) != len(names):
                raise DataError(f"{file}:{number}: expected {len(names)} columns, not {len(fields)}")
            count += 1
            yield f"{file}:{number}", dict(zip(names, fields, strict=True))
        notes.update(ignored(unused, count))

    together = file.is_file() and file.stat().st_size >= LARGE
    return Rows(named(), columns, str(file), notes, together).questions()


def _objects(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, row in read_json_lines(file):
        if not isinstance(row, dict):
            raise DataError(f"{file}:{number}: is not an object; a line holds one whole object")
        yield f"{file}:{number}", row


def _parquet_files(place: Path, options: ColumnOptions) -> list[Path]:
    """The file, or all Parquet files of a folder."""
    return sorted(place.rglob("*.parquet")) if place.is_dir() else [place]


def _schema(file: Path) -> Any:
    try:
        return pq.read_schema(file)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file}: {reason(error)}") from error


def _parquet(file: Path, columns: Columns, notes: Notes) -> Iterator[Row]:
    names = _schema(file).names
    if missing := set(columns.used) - set(names):
        raise DataError(f"{file}: there is no column {min(missing)!r}, which the first file has")
    try:
        with pq.ParquetFile(file) as table:
            notes.update(ignored(columns.unused(names), table.metadata.num_rows))
            batches = table.iter_batches(1024, columns=columns.used)
            yield from _numbered(str(file), (batch.to_pylist() for batch in batches))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file}: {error}") from error


def _numbered(place: str, batches: Iterable[list[dict[str, Any]]]) -> Iterator[Row]:
    for number, row in enumerate(chain.from_iterable(batches), start=1):
        yield f"{place}, row {number}", row


def _dataset(place: Path, options: DatasetOptions) -> Any:
    """The data set; its rows stay on disk."""
    try:
        from datasets import Dataset, load_dataset, load_from_disk  # noqa: PLC0415 - an extra of its own
    except ImportError as error:
        raise DataError(f"the format datasets needs the library of that name; {installed_by('datasets')}") from error
    try:
        if place.is_dir():
            dataset = load_from_disk(str(place))
        elif place.is_absolute() or len(place.parts) > 2:
            raise DataError(f"datasets:{place}: there is no such folder, and it is not a name on the hub")
        else:
            named = {"name": options.config or None, "revision": options.revision or None}
            dataset = load_dataset(str(place), split=options.split or None, **named)
    except (OSError, ValueError) as error:
        raise DataError(f"datasets:{place}: {error}") from error
    if isinstance(dataset, Dataset):
        if place.is_dir() and options.split:
            raise DataError(f"datasets:{place}: the folder holds one data set and no splits; leave split out")
        return dataset
    if options.split not in dataset:
        raise DataError(f"datasets:{place}: split=NAME names one of {', '.join(dataset)}")
    return dataset[options.split]


CSV = Format(
    name="csv",
    options=DelimitedOptions,
    read=partial(_delimited, dialect=csv.excel, hint="commas separate the columns of csv"),
    streamed=True,
)
TSV = Format(
    name="tsv",
    options=DelimitedOptions,
    read=partial(_delimited, dialect=_Tabs, hint="tabs separate the columns of tsv"),
    streamed=True,
)
JSON_ROWS = Format(name="rows", options=ColumnOptions, read=_read_json_rows, streamed=True)
PARQUET = Format(name="parquet", options=ColumnOptions, read=_read_parquet, files=_parquet_files, streamed=True)
DATASETS = Format(name="datasets", options=DatasetOptions, read=_read_datasets, files=_dataset_files, streamed=True)
