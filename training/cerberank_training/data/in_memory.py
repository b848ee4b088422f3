"""Rows of a Python program as data: written to a file, which is then read, bound and named like any other."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cerberank_training.data.question import DataError


@runtime_checkable
class Frame(Protocol):
    """A table that writes itself as lines of JSON, such as pandas.DataFrame."""

    columns: Any

    def to_json(self, *, orient: Any, lines: Any, force_ascii: Any, double_precision: Any) -> Any:
        """The rows, a line of JSON each; missing values are null."""


Data = str | Frame | Iterable[Mapping[str, Any]]
"""`FORMAT:PATH`, a DataFrame of pandas, or rows as mappings: a list of dicts, or a Dataset of Hugging Face."""


KINDS = "data are FORMAT:PATH, a DataFrame, or rows as dicts"


def named_data(data: Data, path: Path) -> str:
    """The data as FORMAT:PATH: a string as it is; rows are written to `path`, a file of JSON lines.

    Rows have the columns of the format `rows`, or the keys of `jsonl` if one is `candidates`, or those of `articles` if
    one is `paragraphs`. Raises DataError for a value that is neither.
    """
    if isinstance(data, str):
        return data
    if isinstance(data, Frame):
        form = _form(data.columns)
        path.write_text(data.to_json(orient="records", lines=True, force_ascii=False, double_precision=15), "utf-8")
        return f"{form}:{path}"
    form = "rows"
    with path.open("w", encoding="utf-8") as file:
        for row in _mappings(data):
            form = _form(row)
            file.write(json.dumps(dict(row), ensure_ascii=False, default=_plain) + "\n")
    return f"{form}:{path}"


def _form(names: Container[str]) -> str:
    return "articles" if "paragraphs" in names else "jsonl" if "candidates" in names else "rows"


def is_one(value: Any) -> bool:
    """True for one data set, False for a sequence of several."""
    return not isinstance(value, list | tuple) or not value or isinstance(value[0], Mapping)


def _mappings(data: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise DataError(f"{KINDS}, and not of type {type(data).__name__}")
    for row in data:
        if not isinstance(row, Mapping):
            raise DataError(f"{KINDS}, and not items of type {type(row).__name__}")
        yield row


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as values of JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise DataError(f"a row holds a {type(value).__name__}, which JSON does not have")
