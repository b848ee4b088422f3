"""Reads answer-sentence-selection data; the entry points are `read_questions("squad-as2:dev.jsonl.gz")`, which yields
questions, and `open_questions`, which gives any of them in bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from cerberank_training.data.asnq import read_asnq
from cerberank_training.data.generic import read_generic
from cerberank_training.data.question import DataError, LabelledCandidate, Question, Subset, sampled, subset
from cerberank_training.data.question_table import QuestionTable, stored_table
from cerberank_training.data.squad import Articles, articles_path, read_squad, read_squad_articles
from cerberank_training.data.trec.collection import read_trec
from cerberank_training.data.wikiqa import read_wikiqa

__all__ = [
    "Articles",
    "DataError",
    "LabelledCandidate",
    "Question",
    "QuestionTable",
    "Subset",
    "articles_path",
    "open_questions",
    "read_questions",
    "read_squad",
    "sampled",
    "subset",
]

READERS: dict[str, Callable[[Path], Iterable[Question]]] = {
    "wikiqa": read_wikiqa,
    "squad-as2": read_squad,
    "squad-as2-article": read_squad_articles,
    "asnq": read_asnq,
    "jsonl": read_generic,
    "trec": read_trec,
}

STREAMED = ("asnq", "jsonl")
"""Formats of one file whose readers yield one question at a time."""
LARGE = 256 << 20
"""Files of so many bytes and more are not held in memory but in a table on disk, if their format is streamed."""


def read_questions(spec: str) -> Iterable[Question]:
    """Questions of `FORMAT:PATH`, such as `wikiqa:WikiQA-test.tsv`; raises DataError for an unknown format."""
    name, separator, path = spec.partition(":")
    if not separator or name not in READERS:
        raise DataError(f"data is named FORMAT:PATH with FORMAT one of {', '.join(READERS)}, not {spec!r}")
    return READERS[name](Path(path))


def open_questions(spec: str) -> QuestionTable:
    """Questions of `FORMAT:PATH` for random access; raises DataError as `read_questions` does, for any row at once.

    Of a file of LARGE bytes and more, the table is PATH.arrow, written at the first call.
    """
    name, _, path = spec.partition(":")
    questions, source = read_questions(spec), Path(path)
    if name in STREAMED and source.is_file() and source.stat().st_size >= LARGE:
        return stored_table(source, questions)
    return QuestionTable.of(questions)
