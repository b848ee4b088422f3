"""Reads the documents of a collection from a file or a folder of files, in JSON lines, TSV, or TREC markup.

    {"id": "d1", "title": "optional", "text": "..."}        .jsonl, BEIR's with `_id`; other keys are ignored
    d1<TAB>text                                             .tsv
    <DOC><DOCNO>d1</DOCNO>...<TEXT>text</TEXT></DOC>        any other name

A file may be compressed, with .gz after its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field

from cerberank_models.json_lines import OptionalText
from cerberank_models.transformer import Frozen
from cerberank_training.data.question import DataError, parse_line, read_lines
from cerberank_training.data.source_files import files_of
from cerberank_training.data.trec.markup import blocks, plain

NUMBER = re.compile(r"<DOCNO>\s*([^\s<]+)\s*</DOCNO>", re.IGNORECASE)
TITLE = re.compile(r"<(HEADLINE|TITLE|TTL|HL|TI)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
TEXT = re.compile(r"<TEXT>(.*?)</TEXT>", re.IGNORECASE | re.DOTALL)


class _Line(Frozen):
    model_config = ConfigDict(extra="ignore")

    id: Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)] = Field(
        validation_alias=AliasChoices("id", "_id")
    )
    title: OptionalText = ""
    text: str


def read_documents(path: Path, *, encoding: str = "utf-8") -> Iterator[tuple[str, str]]:
    """Yield the id and the text of each document; the text begins with the title if there is one, and may be empty.

    The files of a folder are read in the order of their paths.

    Raises DataError with file and line for a malformed row or block, and for a repeated id.
    """
    seen: set[str] = set()
    for file in files_of(path):
        for number, identifier, text in _read(file, encoding):
            if identifier in seen:
                raise DataError(f"{file}:{number}: the document {identifier!r} comes twice")
            seen.add(identifier)
            yield identifier, text


def _read(path: Path, encoding: str) -> Iterator[tuple[int, str, str]]:
    name = path.name.removesuffix(".gz")
    if not name.endswith((".jsonl", ".tsv")):
        for number, block in blocks(path, "DOC", encoding=encoding):
            yield number, *_from_markup(path, number, block)
        return
    for number, line in read_lines(path, encoding=encoding):
        if name.endswith(".tsv"):
            columns = line.split("\t")
            if len(columns) != 2 or not columns[0]:
                raise DataError(f"{path}:{number}: expected a document's id and its text, separated by a tab")
            yield number, columns[0], columns[1]
        else:
            row = parse_line(_Line, path, number, line)
            yield number, row.id, f"{row.title} {row.text}".strip()


def _from_markup(path: Path, number: int, block: str) -> tuple[str, str]:
    identifier = NUMBER.search(block)
    if identifier is None:
        raise DataError(f"{path}:{number}: the document has no <DOCNO>")
    body = TEXT.search(block)
    title = TITLE.search(block, endpos=body.start() if body else len(block))
    parts = [*([title.group(2)] if title else []), *TEXT.findall(block)]
    return identifier.group(1), plain(" ".join(parts))
