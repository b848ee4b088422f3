"""Reads a BEIR folder: `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`, each of which may be compressed (.gz).

It is a TREC collection under other names: candidates are the judged documents of a query, or the best `k` documents of
a run file or of BM25.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cerberank_training.data.format import Format
from cerberank_training.data.notes import Notes
from cerberank_training.data.question import DataError, Question
from cerberank_training.data.trec.document_files import read_documents
from cerberank_training.data.trec.judged import RunOptions, judged_questions
from cerberank_training.data.trec.judgements import read_qrels


class BeirOptions(RunOptions):
    """The options after the question mark."""

    split: str = ""
    """The name of the file in `qrels`; not needed if there is only one file."""


def _read(folder: Path, options: BeirOptions, notes: Notes) -> Iterator[Question]:
    """Yield the judged queries in the order of their file."""
    qrels, _, queries = _files(folder, options)[:3]
    return judged_questions(
        folder,
        options,
        queries=dict(read_documents(queries)),
        qrels=read_qrels(qrels, notes, tabs=True),
        documents=partial(_documents, folder, options),
        notes=notes,
    )


def _files(folder: Path, options: BeirOptions) -> list[Path]:
    names = ("corpus.jsonl", "queries.jsonl")
    return [_qrels_file(folder, options.split), *(_file(folder, name) for name in names), *options.run_files(folder)]


def _documents(folder: Path, options: BeirOptions) -> Iterator[tuple[str, str]]:
    return read_documents(_file(folder, "corpus.jsonl"))


def _qrels_file(folder: Path, split: str) -> Path:
    if split:
        return _file(folder / "qrels", f"{split}.tsv")
    files = sorted((folder / "qrels").glob("*.tsv*"))
    if len(files) != 1:
        names = ", ".join(path.name.partition(".")[0] for path in files) or "none"
        raise DataError(f"{folder}: split says which qrels are meant; there are: {names}")
    return files[0]


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"{folder} is not a BEIR folder: it has no {name}")


BEIR = Format(name="beir", options=BeirOptions, read=_read, files=_files, documents=_documents, streamed=True)
