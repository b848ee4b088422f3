"""Reads TREC runs of any system as rankings, either of documents with qrels or of the candidates of a data set.

Equal scores are ties; the column with the rank is ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cerberank_models.encoding import Candidate
from cerberank_training.data import DataError, LabelledCandidate, Question
from cerberank_training.data.trec.judgements import read_qrels, read_scored_run
from cerberank_training.evaluation.sources.rankings import RankedQuestion
from cerberank_training.evaluation.trec_files.writing import document_ids
from cerberank_training.evaluation.variants import flat_ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedRun:
    """A run with the judgements of its qrels."""

    ranked: list[RankedQuestion]
    unjudged: int
    """The number of queries of the run without a judgement, which are ignored."""
    absent: int
    """The number of queries with relevant documents that are not in the run."""

    def note(self) -> str:
        """A line with both numbers; empty if they are 0."""
        reasons = {"of the run without a judgement, ignored": self.unjudged, "that the run lacks count 0": self.absent}
        return "; ".join(f"{count} queries {what}" for what, count in reasons.items() if count)


def judged_run(run_path: Path, qrels_path: Path) -> JudgedRun:
    """Every judged query with the run's documents, ordered by id. Documents without a judgement are not relevant.

    As in ir_measures, queries without a judgement are ignored, and a query with relevant documents that is not in the
    run counts as 0. A query with neither relevant nor retrieved documents is left out. Raises DataError, also for files
    without a common query.
    """
    run, qrels = read_scored_run(run_path), read_qrels(qrels_path)
    if not run.keys() & qrels.keys():
        raise DataError(f"{run_path} and {qrels_path} have no query in common")
    ranked = []
    for query, grades in qrels.items():
        rows = run.get(query, {})
        missed = tuple(sorted(grade for each, grade in grades.items() if grade and each not in rows))
        if not rows and not missed:
            continue
        documents = sorted(rows)
        candidates = tuple(LabelledCandidate(Candidate(text=each), grades.get(each, 0), id=each) for each in documents)
        question = Question(id=query, text="", candidates=candidates, missed=missed)
        scores = {"final": np.asarray([rows[each][0] for each in documents], dtype=np.float64)}
        ranks = flat_ranks(scores)
        ranked.append(RankedQuestion(question=question, ranks=ranks, scores=scores, judgements=judgements_hash(grades)))
    return JudgedRun(
        ranked=ranked,
        unjudged=len(run.keys() - qrels.keys()),
        absent=sum(not each.question.candidates for each in ranked),
    )


def judgements_hash(grades: Mapping[str, int]) -> str:
    """A hash of the query's relevant documents and their grades, in any order."""
    rows = sorted(f"{document} {grade}\n" for document, grade in grades.items() if grade)
    return hashlib.sha256("".join(rows).encode()).hexdigest()[:32]


def run_rankings(path: Path, questions: Iterable[Question]) -> Iterator[RankedQuestion]:
    """Rank the questions' candidates by a run's scores. Documents have the ids of `document_ids`.

    Raises DataError for a candidate without a score, and for a document of the question that is not a candidate.
    """
    run = read_scored_run(path)
    for question in questions:
        rows, ids = run.get(question.id, {}), document_ids(question)
        if lacking := [each for each in ids if each not in rows]:
            raise DataError(f"{path} has no score for document {lacking[0]!r} of question {question.id!r}")
        if unknown := rows.keys() - set(ids):
            raise DataError(f"{path}: document {min(unknown)!r} is not a candidate of question {question.id!r}")
        scores = {"final": np.asarray([rows[each][0] for each in ids], dtype=np.float64)}
        yield RankedQuestion(question=question, ranks=flat_ranks(scores), scores=scores)
