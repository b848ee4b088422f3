"""Reads the queries of a collection from TSV (id, text), or from the titles of TREC topics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cerberank_training.data.question import DataError, read_lines
from cerberank_training.data.trec.markup import blocks, plain

NUMBER = re.compile(r"<num>\s*(?:Number:)?\s*([^\s<]+)", re.IGNORECASE)
TITLE = re.compile(r"<title>\s*(?:Topic:)?\s*([^<]*)", re.IGNORECASE)


def read_queries(path: Path, *, encoding: str = "utf-8") -> dict[str, str]:
    """The texts by id, in the order of the file: TSV if its name ends in .tsv or .tsv.gz, else `<top>` blocks.

    Leading zeros of a topic's number are removed, because judgements do not have them. Raises DataError with file and
    line.
    """
    queries: dict[str, str] = {}
    is_tsv = path.name.removesuffix(".gz").endswith(".tsv")
    for number, identifier, text in (_rows if is_tsv else _topics)(path, encoding):
        if identifier in queries:
            raise DataError(f"{path}:{number}: the query {identifier!r} comes twice")
        queries[identifier] = text
    return queries


def _rows(path: Path, encoding: str) -> Iterator[tuple[int, str, str]]:
    for number, line in read_lines(path, encoding=encoding):
        columns = line.split("\t")
        if len(columns) != 2 or not all(column.strip() for column in columns):
            raise DataError(f"{path}:{number}: expected a query's id and its text, separated by a tab")
        yield number, columns[0].strip(), columns[1].strip()


def _topics(path: Path, encoding: str) -> Iterator[tuple[int, str, str]]:
    for number, block in blocks(path, "top", encoding=encoding):
        identifier, title = NUMBER.search(block), TITLE.search(block)
        text = plain(title.group(1)) if title else ""
        if identifier is None or not text:
            raise DataError(f"{path}:{number}: the topic has no <num> or no <title>")
        yield number, identifier.group(1).lstrip("0") or "0", text
