"""A run's scores give the order at the 32 bits that trec_eval keeps of them, and ids are those that the data has."""

from __future__ import annotations

import io

import numpy as np
import pytest
from ir_measures import AP, calc_aggregate, nDCG, read_trec_qrels, read_trec_run

from cerberank_models.encoding import Candidate
from cerberank_training.data import DataError, LabelledCandidate, Question
from cerberank_training.evaluation.question_metrics import expected_metrics, ranks_of
from cerberank_training.evaluation.trec_files.writing import (
    WrittenRun,
    check_ids,
    write_qrels_rows,
    write_run_rows,
)


def question(
    labels: list[int], *, name: str = "q", ids: list[str] | None = None, missed: tuple[int, ...] = ()
) -> Question:
    rows = [
        LabelledCandidate(Candidate(text="t"), label, id=ids[place] if ids else "")
        for place, label in enumerate(labels)
    ]
    return Question(id=name, text="", candidates=tuple(rows), missed=missed)


def run_of(judged: Question, scores: list[float]) -> tuple[str, WrittenRun]:
    file, written, values = io.BytesIO(), WrittenRun(), np.asarray(scores)
    ranks = ranks_of(values)
    write_run_rows(file, judged, ranks, values, tag="t", written=written)
    return file.getvalue().decode(), written


def test_rows_are_in_the_order_in_which_trec_eval_reads_them() -> None:
    """Best first, scores in full; equal scores by document id, descending, and they are counted."""
    text, written = run_of(question([1, 0, 0, 2], ids=["b", "a", "c", "d"]), [0.1, 0.1, 0.7 / 3, 0.1])
    assert text.splitlines() == [
        "q Q0 c 1 0.2333333333333333 t",
        "q Q0 d 2 0.1 t",
        "q Q0 b 3 0.1 t",
        "q Q0 a 4 0.1 t",
    ]
    assert (written.questions, written.documents, written.tied, written.by_rank) == (1, 4, 3, 0)


def by_ir_measures(judged: Question, run: str) -> list[float]:
    qrels = io.BytesIO()
    write_qrels_rows(qrels, judged)
    values = calc_aggregate([AP, nDCG @ 10], read_trec_qrels(qrels.getvalue().decode()), read_trec_run(run))
    return [values[AP], values[nDCG @ 10]]


@pytest.mark.parametrize(("high", "low"), [(0.5 + 1e-9, 0.5), (5e-324, 0.0), (2e39, 1e39)])
def test_scores_that_trec_eval_could_not_tell_apart_are_written_as_ranks(high: float, low: float) -> None:
    """Scores of 64 bits that are equal in 32 are sorted by id there; n - rank gives the order."""
    judged = question([1, 0, 0], missed=(2,))
    text, written = run_of(judged, [high, low, -1.0])
    assert written.by_rank == 1
    assert [row.split()[4] for row in text.splitlines()] == ["3", "2", "1"]
    ours = expected_metrics(np.asarray(judged.labels), np.array([0, 1, 2]), judged.missed)
    assert by_ir_measures(judged, text) == pytest.approx([ours["map"], ours["ndcg@10"]])
    in_full = f"q Q0 q-1 1 {high!r} t\nq Q0 q-2 2 {low!r} t\nq Q0 q-3 3 -1.0 t\n"
    assert by_ir_measures(judged, in_full)[0] < ours["map"]


def test_documents_without_ids_are_named_by_question_and_place() -> None:
    """So that no two texts of a file share an id; relevant documents that are not candidates have ids too."""
    text, _ = run_of(question([1, 0]), [0.1, 0.2])
    qrels = io.BytesIO()
    write_qrels_rows(qrels, question([1, 0], missed=(3,)))
    assert [row.split()[2] for row in text.splitlines()] == ["q-2", "q-1"]
    assert qrels.getvalue().decode() == "q 0 q-1 1\nq 0 q-2 0\nq 0 missed-1 3\n"


@pytest.mark.parametrize(
    ("judged", "message"),
    [
        (question([1], name="a b"), r"question 'a b': .* separate columns by blanks, which the id 'a b' has"),
        (question([1], ids=["d\u00a01"]), "which the id 'd\\\\xa01' has"),
        (question([1], name=""), "question '': TREC's files need an id"),
        (question([1, 0], ids=["d", "d"]), "two of its documents have the same id"),
        (question([1, 0], ids=["d", "missed-1"], missed=(1,)), "two of its documents have the same id"),
    ],
)
def test_ids_that_the_files_cannot_hold_are_refused(judged: Question, message: str) -> None:
    """Blanks of any kind, no id, and an id that comes twice."""
    with pytest.raises(DataError, match=message):
        check_ids([judged])
