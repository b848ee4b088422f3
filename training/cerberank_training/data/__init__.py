"""Reads data for answer sentence selection, such as `squad-as2:dev.jsonl.gz`.

`read_questions` yields questions one after the other; `open_questions` gives random access in bounded memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cerberank_models.output import note
from cerberank_training.data.asnq import asnq_files, read_asnq
from cerberank_training.data.formats.beir import beir_files, read_beir
from cerberank_training.data.formats.msmarco import msmarco_files, read_msmarco
from cerberank_training.data.formats.tables import (
    datasets_files,
    parquet_files,
    read_csv,
    read_datasets,
    read_json_rows,
    read_parquet,
    read_tsv,
)
from cerberank_training.data.generic import read_generic
from cerberank_training.data.notes import Notes, noted
from cerberank_training.data.question import DataError, LabelledCandidate, Question, Subset, sampled, subset
from cerberank_training.data.question_table import QuestionTable, kept_table
from cerberank_training.data.source_files import plain_files
from cerberank_training.data.squad import Articles, articles_path, read_squad, read_squad_articles
from cerberank_training.data.trec.collection import read_trec, trec_files
from cerberank_training.data.trecqa import read_trecqa, trecqa_files
from cerberank_training.data.wikiqa import read_wikiqa

__all__ = [
    "Articles",
    "DataError",
    "LabelledCandidate",
    "Question",
    "QuestionTable",
    "Subset",
    "articles_path",
    "data_files",
    "open_questions",
    "read_questions",
    "read_squad",
    "sampled",
    "set_names",
    "subset",
]

Reader = Callable[[Path, Notes], Iterable[Question]]
"""Reads the path after `FORMAT:`, and counts in the notes what it ignores."""


def _plain(read: Callable[[Path], Iterable[Question]]) -> Reader:
    return lambda path, notes: read(path)


READERS: dict[str, Reader] = {
    "wikiqa": _plain(read_wikiqa),
    "squad-as2": _plain(read_squad),
    "squad-as2-article": _plain(read_squad_articles),
    "asnq": _plain(read_asnq),
    "jsonl": read_generic,
    "trec": read_trec,
    "trecqa": _plain(read_trecqa),
    "beir": read_beir,
    "msmarco": read_msmarco,
    "csv": read_csv,
    "tsv": read_tsv,
    "rows": read_json_rows,
    "parquet": read_parquet,
    "datasets": read_datasets,
}

FILES: dict[str, Callable[[Path], dict[str, Path]]] = {
    "asnq": asnq_files,
    "trec": trec_files,
    "trecqa": trecqa_files,
    "beir": beir_files,
    "msmarco": msmarco_files,
    "parquet": parquet_files,
    "datasets": datasets_files,
}
"""Functions that list the files of a format. Other formats read one file, or all files of a folder."""
STREAMED = ("asnq", "jsonl", "beir", "msmarco", "csv", "tsv", "rows", "parquet", "datasets")
"""The formats whose readers hold only one question at a time in memory."""
LARGE = 256 << 20
"""From this number of bytes on, the questions of a streamed format are in a table on disk and not in memory."""


def read_questions(spec: str, *, training: bool = False, report: Callable[[str], object] = note) -> Iterable[Question]:
    """Yield the questions of `FORMAT:PATH`, such as `wikiqa:WikiQA-test.tsv`. Raises DataError for an unknown format.

    For `training`, unjudged copies of relevant documents are left out. After the last question, `report` is called with
    a line if something was ignored or is unusual.
    """
    name, separator, path = spec.partition(":")
    if not separator or name not in READERS:
        raise DataError(f"data is named FORMAT:PATH with FORMAT one of {', '.join(READERS)}, not {spec!r}")
    notes = Notes()
    return noted(READERS[name](Path(path), notes), spec, notes, report, training=training)


def data_files(spec: str) -> dict[str, Path]:
    """The files of `FORMAT:PATH`, by names without folders of this machine; empty for data that are not files.

    Like the reader, it raises DataError for a wrong option and for a folder that lacks a file.
    """
    form, _, path = spec.partition(":")
    return FILES.get(form, plain_files)(Path(path)) if Path(path.partition("?")[0]).exists() else {}


def open_questions(spec: str, *, training: bool = False) -> QuestionTable:
    """Read all questions of `FORMAT:PATH` for random access. Raises the errors of `read_questions`.

    From LARGE bytes on, the questions are in a table on disk, PATH.arrow, which the first call writes. For `training`,
    unjudged copies of relevant documents are left out.
    """
    name, _, path = spec.partition(":")
    place, _, options = path.partition("?")
    source = Path(os.path.abspath(place))  # the folder "." has no name
    questions = read_questions(spec, training=training)
    if name not in STREAMED or not source.exists():
        return QuestionTable.of(questions)
    most = 0 if source.is_file() and source.stat().st_size >= LARGE else LARGE
    if training and "run=" in options:
        options += "#training"  # a table without copies has other content
    return kept_table(source, questions, options=options, files=list(data_files(spec).values()), most=most)


def set_names(data: Sequence[str]) -> list[str]:
    """The name `FORMAT:FILE` of each `FORMAT:PATH`, with folders only as far as names would be equal without them.

    Model cards use these names, because they should not show folders of the machine.

    >>> set_names(["jsonl:/data/faq/dev.jsonl"]), set_names(["jsonl:/data/faq/dev.jsonl", "jsonl:/data/news/dev.jsonl"])
    (['jsonl:dev.jsonl'], ['jsonl:faq/dev.jsonl', 'jsonl:news/dev.jsonl'])
    """
    parts = [(form, Path(path).parts) for form, _, path in (each.partition(":") for each in data)]
    most = max(len(path) for _, path in parts)
    shortened = ([f"{form}:{'/'.join(path[-kept:])}" for form, path in parts] for kept in range(1, most + 1))
    return next((names for names in shortened if len(set(names)) == len(names)), list(data))
