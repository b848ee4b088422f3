"""Reads a TREC collection as questions with candidates: `trec:FOLDER?key=value&...`.

FOLDER has one file that begins with `queries`, one that begins with `qrels`, and a file or folder that begins with
`documents`; `TrecOptions` can name others. Candidates are the judged documents, or the best `k` documents of a run.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from pydantic import field_validator

from cerberank_training.data.format import Format
from cerberank_training.data.notes import Notes
from cerberank_training.data.question import DataError, Question
from cerberank_training.data.source_files import files_of
from cerberank_training.data.trec.document_files import read_documents
from cerberank_training.data.trec.judged import LACKING, RunOptions, judged_question, with_text
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


def _read(folder: Path, options: TrecOptions, notes: Notes) -> list[Question]:
    """The judged queries, in the order of their file. Raises DataError.

    Judged queries without a text, and judged documents that the collection lacks, are counted.
    """
    queries = read_queries(_entry(folder, "queries", options.queries), encoding=options.encoding)
    qrels = with_text(read_qrels(_entry(folder, "qrels", options.qrels), notes), queries, notes)
    chosen = {query: text for query, text in queries.items() if query in qrels}
    run = options.ranked(folder, chosen, _documents(folder, options))
    candidates = {query: list(qrels[query]) for query in chosen} if run is None else run
    # Memory holds the texts of candidates and of relevant documents, whose copies among the candidates are marked.
    wanted = set(chain.from_iterable(candidates.values()))
    read = wanted | {each for query in chosen for each, grade in qrels[query].items() if grade}
    texts = {identifier: text for identifier, text in _documents(folder, options) if identifier in read}
    notes[LACKING] += sum(each in read and each not in texts for query in chosen for each in qrels[query])
    if run is None:
        candidates = {query: [each for each in documents if each in texts] for query, documents in candidates.items()}
    elif missing := wanted - texts.keys():
        raise DataError(f"{folder}: {len(missing)} documents of the run are missing, such as {min(missing)!r}")
    if empty := [query for query in chosen if not candidates.get(query)]:
        raise DataError(f"{folder}: {len(empty)} judged queries have no document, such as {empty[0]!r}")
    return [judged_question(query, text, candidates[query], qrels[query], texts) for query, text in chosen.items()]


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
