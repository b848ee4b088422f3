"""Reads the judgements of assessors (qrels) and the runs of systems.

Blanks separate the columns of qrels (`query 0 document grade`) and runs (`query Q0 document rank score tag`). BEIR's
qrels have three columns with tabs between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path

from cerberank_training.data.notes import Notes
from cerberank_training.data.question import DataError, read_lines

HEADER = ("query-id", "corpus-id", "score")
"""The first line of BEIR's qrels."""
Qrels = dict[str, dict[str, int]]
"""Grades by query and document."""
Run = dict[str, list[str]]
"""Documents by query, best first."""
ScoredRun = dict[str, dict[str, tuple[float, int]]]
"""Scores and ranks by query and document."""
_QRELS = "a query, 0, a document and a grade"
_RUN = "a query, Q0, a document, a rank, a score and a tag"


def read_qrels(path: Path, notes: Notes | None = None, *, tabs: bool = False) -> Qrels:
    """Read grades in the order of the file. Grades below 0, which mark spam in some tracks, become 0.

    The format is BEIR's with `tabs`, and for a file that begins with HEADER. A judgement that is repeated counts once,
    and in the notes. Raises DataError for two grades of one document, which trec_eval refuses too.
    """
    qrels: Qrels = {}
    for number, line in read_lines(path):
        if not qrels and tuple(line.split("\t")) == HEADER:
            tabs = True
            continue
        columns = line.split("\t") if tabs else line.split()
        if len(columns) != (3 if tabs else 4):
            expected = "a query, a document and a grade, separated by tabs" if tabs else _QRELS
            raise DataError(f"{path}:{number}: expected {expected}")
        query, document, grade = columns[0], *columns[-2:]
        if not grade.removeprefix("-").isdecimal():
            raise DataError(f"{path}:{number}: the grade {grade!r} is not a whole number")
        value, grades = max(0, int(grade)), qrels.setdefault(query, {})
        if (known := grades.get(document, value)) != value:
            raise DataError(
                f"{path}:{number}: the document {document!r} has two grades for query {query!r}, {known} and {value}"
            )
        if document in grades and notes is not None:
            notes["judgements that come twice"] += 1
        grades[document] = value
    return qrels


def read_run(path: Path) -> Run:
    """Read the documents of each query, ordered by score and then by rank. Raises DataError."""
    return {query: best_first(documents) for query, documents in read_scored_run(path).items()}


def best_first(documents: Mapping[str, tuple[float, int]]) -> list[str]:
    """The documents, ordered by score and then by rank.

    >>> best_first({"a": (0.5, 2), "b": (0.5, 1), "c": (0.7, 3)})
    ['c', 'b', 'a']
    """
    return sorted(documents, key=lambda each: (-documents[each][0], documents[each][1]))


def read_scored_run(path: Path) -> ScoredRun:
    """Read the scores and ranks of a run. Raises DataError with file and line."""
    rows: ScoredRun = {}
    for number, line in read_lines(path):
        columns = line.split()
        if len(columns) != 6:
            raise DataError(f"{path}:{number}: expected {_RUN}")
        query, _, document, rank, score, _ = columns
        try:
            place = float(score), int(rank)
        except ValueError as error:
            raise DataError(f"{path}:{number}: {error}") from error
        if not isfinite(place[0]):
            raise DataError(f"{path}:{number}: the score {score!r} is not a finite number")
        documents = rows.setdefault(query, {})
        if document in documents:
            raise DataError(f"{path}:{number}: the document {document!r} comes twice for query {query!r}")
        documents[document] = place
    return rows
