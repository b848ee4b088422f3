"""Writes one ranking of each question as a TREC run, and the labels as qrels.

TREC's programs ignore ranks. They order documents by scores as numbers of 32 bits, and equal scores by falling document
id. Therefore scores are written in full if they give the order of the ranks at this precision, and else n - rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from cerberank_models.backends.stage_contract import Scores
from cerberank_training.data import DataError, Question
from cerberank_training.evaluation.question_metrics import ranks_of
from cerberank_training.evaluation.variants import Ranks

MISSED = "missed"
"""The prefix of ids for relevant documents that are not candidates: qrels name them `missed-1`, `missed-2`, ..."""


@dataclass(kw_only=True, slots=True)
class WrittenRun:
    """The counts of a run that is being written."""

    questions: int = 0
    documents: int = 0
    by_rank: int = 0
    """The number of questions with n - rank instead of scores, because their scores do not give the order."""
    tied: int = 0
    """The number of documents that are tied with a document of another grade."""


def check_ids(questions: Iterable[Question]) -> None:
    """Raise DataError for an id that TREC's files cannot contain, and for a document that is a candidate twice."""
    for question in questions:
        ids = document_ids(question)
        for each in (question.id, *ids):
            if each.split() != [each]:
                raise DataError(
                    f"question {question.id!r}: TREC's files separate columns by blanks, which the id {each!r} has"
                    if each
                    else f"question {question.id!r}: TREC's files need an id"
                )
        if len({*ids, *missed_ids(question)}) < len(ids) + len(question.missed):
            raise DataError(f"question {question.id!r}: two of its documents have the same id")


def document_ids(question: Question) -> list[str]:
    """The candidates' ids in the data set or, if it has no ids, `QUESTION-PLACE`, counted from 1."""
    return [row.id or f"{question.id}-{place}" for place, row in enumerate(question.candidates, start=1)]


def missed_ids(question: Question) -> list[str]:
    """Ids for the relevant documents that are not candidates."""
    return [f"{MISSED}-{number}" for number in range(1, len(question.missed) + 1)]


def write_run_rows(
    file: BinaryIO, question: Question, ranks: Ranks, scores: Scores | None, *, tag: str, written: WrittenRun
) -> None:
    """Append the candidates of a question in the order of trec_eval, and update `written`."""
    ids = document_ids(question)
    values = faithful_scores(ranks, scores)
    if values is None:
        values = [str(len(ids) - rank) for rank in ranks.tolist()]
        written.by_rank += 1
    descending = sorted(range(len(ids)), key=lambda place: ids[place].encode(), reverse=True)
    order = sorted(descending, key=lambda place: int(ranks[place]))
    lines = [f"{question.id} Q0 {ids[each]} {place} {values[each]} {tag}" for place, each in enumerate(order, start=1)]
    file.write("".join(f"{line}\n" for line in lines).encode())
    written.questions += 1
    written.documents += len(ids)
    labels = np.asarray(question.labels)
    written.tied += sum(len(set(labels[ranks == rank].tolist())) > 1 for rank in ranks.tolist())


def write_qrels_rows(file: BinaryIO, question: Question) -> None:
    """Append the grades of a question's candidates, including 0, and of relevant documents that are not candidates."""
    ids = [*document_ids(question), *missed_ids(question)]
    grades = [*question.labels, *question.missed]
    rows = [f"{question.id} 0 {document} {grade}\n" for document, grade in zip(ids, grades, strict=True)]
    file.write("".join(rows).encode())


def faithful_scores(ranks: Ranks, scores: Scores | None) -> Sequence[str] | None:
    """The scores in full, or None if they do not give the order of the ranks as numbers of 32 bits.

    >>> ranks = np.array([0, 1])
    >>> faithful_scores(ranks, np.array([0.5, 0.25])), faithful_scores(ranks, np.array([0.5, 0.5 - 1e-12]))
    (['0.5', '0.25'], None)
    """
    if scores is None:
        return None
    with np.errstate(over="ignore"):
        short = np.asarray(scores).astype(np.float32)
    if not np.isfinite(short).all() or (ranks_of(short) != ranks).any():
        return None
    return [repr(float(score)) for score in scores]
