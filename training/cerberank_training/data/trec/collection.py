"""Reads a TREC collection as questions with candidates: `trec:FOLDER?key=value&...`.

FOLDER has one file that begins with `queries`, one that begins with `qrels`, and a file or folder that begins with
`documents`; `TrecOptions` can name others. Candidates are the judged documents, or the best `k` documents of a run.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pydantic import field_validator

from cerberank_training.data.format import Format
from cerberank_training.data.notes import Notes
from cerberank_training.data.question import DataError, Question
from cerberank_training.data.source_files import files_of
from cerberank_training.data.trec.document_files import read_documents
from cerberank_training.data.trec.judged import RunOptions, judged_questions
from cerberank_training.data.trec.judgements import read_qrels
from cerberank_training.data.trec.queries import read_queries


class TrecOptions(RunOptions):
    """The options after the question mark. Paths are relative to the folder."""

    queries: str = ""
    documents: str = ""
    qrels: str = ""
    encoding: str = "utf-8"
    """The encoding of queries and documents, such as latin-1 for Robust04."""

    @field_validator("encoding")
    @classmethod
    def _python_name(cls, value: str) -> str:
        try:
            return codecs.lookup(value).name
        except LookupError as error:
            raise ValueError(str(error)) from error


def _read(folder: Path, options: TrecOptions, notes: Notes) -> Iterator[Question]:
    """The judged queries, in the order of their file. Raises DataError."""
    return judged_questions(
        folder,
        options,
        queries=read_queries(_entry(folder, "queries", options.queries), encoding=options.encoding),
        qrels=read_qrels(_entry(folder, "qrels", options.qrels), notes),
        documents=partial(_documents, folder, options),
        notes=notes,
    )


def _documents(folder: Path, options: TrecOptions) -> Iterator[tuple[str, str]]:
    return read_documents(_entry(folder, "documents", options.documents), encoding=options.encoding)


def _files(folder: Path, options: TrecOptions) -> list[Path]:
    entries = [_entry(folder, name, getattr(options, name)) for name in ("queries", "documents", "qrels")]
    return [file for entry in (*entries, *options.run_files(folder)) for file in files_of(entry)]


def _entry(folder: Path, name: str, option: str) -> Path:
    """The file or folder that the option names, or the only entry of the folder whose name begins with `name`."""
    entries = [folder / option] if option else sorted(folder.glob(f"{name}*"))
    if len(entries) != 1 or not entries[0].exists():
        raise DataError(f"{folder} needs one entry {option or f'{name}*'}; the option {name} names it")
    return entries[0]


TREC = Format(name="trec", options=TrecOptions, read=_read, files=_files, documents=_documents)
