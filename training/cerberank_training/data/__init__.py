"""Reads data for answer sentence selection, such as `squad-as2:dev.jsonl.gz`.

`read_questions` yields questions one after the other; `open_questions` gives random access in bounded memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cerberank_models.output import note
from cerberank_training.data.asnq import ASNQ
from cerberank_training.data.format import Format, without_options
from cerberank_training.data.formats.beir import BEIR
from cerberank_training.data.formats.msmarco import MS_MARCO
from cerberank_training.data.formats.tables import CSV, DATASETS, JSON_ROWS, PARQUET, TSV
from cerberank_training.data.generic import GENERIC
from cerberank_training.data.notes import Notes, reported
from cerberank_training.data.question import DataError, LabelledCandidate, Question, Subset, sampled, subset
from cerberank_training.data.question_table import QuestionTable, stored_table
from cerberank_training.data.source_files import named_files, source_files
from cerberank_training.data.squad import Articles, articles_path, read_squad, read_squad_articles
from cerberank_training.data.trec.collection import TREC
from cerberank_training.data.trec.document_files import read_documents
from cerberank_training.data.trecqa import read_trecqa
from cerberank_training.data.wikiqa import read_wikiqa

__all__ = [
    "Articles",
    "DataError",
    "LabelledCandidate",
    "Question",
    "QuestionTable",
    "Subset",
    "articles_path",
    "check_named",
    "corpus_texts",
    "data_files",
    "open_questions",
    "read_questions",
    "read_squad",
    "sampled",
    "set_names",
    "subset",
]

FORMATS: Mapping[str, Format[Any]] = MappingProxyType(
    {
        form.name: form
        for form in (
            without_options("wikiqa", read_wikiqa),
            without_options("squad-as2", read_squad),
            without_options("squad-as2-article", read_squad_articles),
            ASNQ,
            GENERIC,
            TREC,
            without_options("trecqa", read_trecqa),
            BEIR,
            MS_MARCO,
            CSV,
            TSV,
            JSON_ROWS,
            PARQUET,
            DATASETS,
        )
    }
)
"""The formats of questions by name, in the order of messages."""
LARGE = 256 << 20
"""From this number of bytes on, the questions of a streamed format are in a table on disk and not in memory."""


def read_questions(spec: str, *, training: bool = False, report: Callable[[str], object] = note) -> Iterable[Question]:
    """Yield the questions of `FORMAT:PATH`, such as `wikiqa:WikiQA-test.tsv`. Raises DataError for an unknown format.

    For `training`, unjudged copies of relevant documents are left out. After the last question, `report` is called with
    a line if something was ignored or is unusual.
    """
    form, place, options = _parsed(spec)
    notes = Notes()
    return reported(form.read(place, options, notes), spec, notes, report, training=training)


def check_named(spec: str) -> None:
    """Raise DataError if `FORMAT:PATH` has an unknown format or option, or names a path that is not there.

    Nothing is read. Data of the hub are not looked for.
    """
    form, place, _ = _parsed(spec)
    if form is not DATASETS and not place.exists():
        raise DataError(f"{place}: there is no such file or folder")


def _parsed(spec: str) -> tuple[Format[Any], Path, Any]:
    """The format, the path, and the options behind it."""
    name, separator, path = spec.partition(":")
    if not separator or name not in FORMATS:
        raise DataError(f"data is named FORMAT:PATH with FORMAT one of {', '.join(FORMATS)}, not {spec!r}")
    return (FORMATS[name], *FORMATS[name].parse(Path(path)))


def data_files(spec: str) -> dict[str, Path]:
    """The files of `FORMAT:PATH`, by names without folders of this machine; empty for data that are not files.

    Documents, which no format of questions has, are all files of the path. Like the reader, it raises DataError for a
    wrong option and for a folder that lacks a file.
    """
    name, _, path = spec.partition(":")
    place = Path(path.partition("?")[0])
    if not place.exists():
        return {}
    if name in FORMATS:
        return FORMATS[name].named_files(Path(path))
    return named_files(place if place.is_dir() else place.parent, source_files(place))


def corpus_texts(spec: str, questions: Iterable[Question] | None = None) -> list[str]:
    """The distinct texts of `FORMAT:PATH` that are searched for negatives, in order.

    These are the documents of `trec`, `beir` and `documents:PATH`, a file or folder in the formats of TREC collections,
    and the candidates of other formats. `questions` are those of `spec`, if they have been read. Raises DataError.
    """
    name, _, path = spec.partition(":")
    form = FORMATS.get(name)
    documents: Iterator[tuple[str, str]] | None = None
    if name == "documents":
        documents = read_documents(Path(path))
    elif form is not None and form.documents is not None:
        documents = form.documents(*form.parse(Path(path)))
    if documents is not None:
        return list(dict.fromkeys(text for _, text in documents))
    every = read_questions(spec) if questions is None else questions
    return list(dict.fromkeys(row.candidate.text for question in every for row in question.candidates))


def open_questions(spec: str, *, training: bool = False) -> QuestionTable:
    """Read all questions of `FORMAT:PATH` for random access. Raises the errors of `read_questions`.

    From LARGE bytes on, the questions are in a table on disk, PATH.arrow, which the first call writes. For `training`,
    unjudged copies of relevant documents are left out.
    """
    name, _, path = spec.partition(":")
    place, _, options = path.partition("?")
    source = Path(os.path.abspath(place))  # the folder "." has no name
    questions = read_questions(spec, training=training)
    if not FORMATS[name].streamed or not source.exists():
        return QuestionTable.of(questions)
    most = 0 if source.is_file() and source.stat().st_size >= LARGE else LARGE
    if training and "run=" in options:
        options += "#training"  # a table without copies has other content
    return stored_table(source, questions, options=options, files=list(data_files(spec).values()), most=most)


def set_names(data: Sequence[str]) -> list[str]:
    """The name `FORMAT:FILE` of each `FORMAT:PATH`, with folders only as far as names would be equal without them.

    Model cards use these names, because they should not show folders of the machine.

    >>> set_names(["jsonl:/data/faq/dev.jsonl"]), set_names(["jsonl:/data/faq/dev.jsonl", "jsonl:/data/news/dev.jsonl"])
    (['jsonl:dev.jsonl'], ['jsonl:faq/dev.jsonl', 'jsonl:news/dev.jsonl'])
    """
    parts = [(form, Path(path).parts) for form, _, path in (each.partition(":") for each in data)]
    longest = max(len(path) for _, path in parts)
    shortened = ([f"{form}:{'/'.join(path[-last:])}" for form, path in parts] for last in range(1, longest + 1))
    return next((names for names in shortened if len(set(names)) == len(names)), list(data))
