"""Runs that others made have the figures of ir_measures, and are comparable where their judgements are the same."""

from __future__ import annotations

from pathlib import Path

import ir_measures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cerberank_models.encoding import Candidate
from cerberank_training.data import DataError, LabelledCandidate, Question
from cerberank_training.evaluation.figures import Evaluation
from cerberank_training.evaluation.measures import parse_measures
from cerberank_training.evaluation.paired_tests import compare
from cerberank_training.evaluation.per_question import QuestionRecord, check_comparable, check_same_candidates, record
from cerberank_training.evaluation.question_metrics import METRICS, TITLES
from cerberank_training.evaluation.trec_files.reading import JudgedRun, judged_run, run_rankings

MEASURES = parse_measures("AP(rel=2) RR(rel=2)@5 R@3 Success@2 nDCG")
documents = st.sampled_from([f"d{number}" for number in range(8)])
queries = st.sampled_from(["q1", "q2", "q3"])


def files(folder: Path, run: dict[str, list[str]], qrels: dict[str, dict[str, int]]) -> tuple[Path, Path]:
    rows = [f"{q} Q0 {d} {n} {9 - n} t\n" for q, each in run.items() for n, d in enumerate(each, start=1)]
    (folder / "run").write_text("".join(rows))
    (folder / "qrels").write_text("".join(f"{q} 0 {d} {g}\n" for q, each in qrels.items() for d, g in each.items()))
    return folder / "run", folder / "qrels"


def records_of(read: JudgedRun) -> dict[str, QuestionRecord]:
    evaluation, records = Evaluation(), {}
    for ranked in read.ranked:
        metrics = evaluation.add(ranked.question, ranked.ranks)
        records[ranked.question.id] = record(
            ranked.question, metrics=metrics, ranks=ranked.ranks, scores={}, judgements=ranked.judgements
        )
    return records


@given(
    run=st.dictionaries(queries, st.lists(documents, min_size=1, unique=True), min_size=1),
    qrels=st.dictionaries(queries, st.dictionaries(documents, st.integers(1, 3), min_size=1), min_size=1),
)
@settings(deadline=None, max_examples=60)
def test_figures_are_those_of_ir_measures(
    run: dict[str, list[str]], qrels: dict[str, dict[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Queries that only the run has are ignored, those that only the qrels have count 0, both as there."""
    paths = files(tmp_path_factory.mktemp("trec"), run, qrels)
    if not run.keys() & qrels.keys():
        with pytest.raises(DataError, match="have no query in common"):
            judged_run(*paths)
        return
    read, evaluation = judged_run(*paths), Evaluation(MEASURES)
    for ranked in read.ranked:
        evaluation.add(ranked.question, ranked.ranks)
    names = [*TITLES.values(), *map(str, MEASURES)]
    theirs = ir_measures.calc_aggregate(
        [ir_measures.parse_measure(name) for name in names],
        list(ir_measures.read_trec_qrels(str(paths[1]))),
        list(ir_measures.read_trec_run(str(paths[0]))),
    )
    figures = evaluation.figures()["final"]
    means = [figures.mean[name] for name in (*METRICS, *map(str, MEASURES))]
    expected = {str(name): 100 * value for name, value in theirs.items()}
    assert means == pytest.approx([expected[str(ir_measures.parse_measure(name))] for name in names])
    assert (read.unjudged, read.absent) == (len(run.keys() - qrels.keys()), len(qrels.keys() - run.keys()))
    assert figures.pairs == sum(len(run[query]) for query in run.keys() & qrels.keys())


def test_equal_scores_are_ties(tmp_path: Path) -> None:
    """Whatever their rank: half of the two orders has the relevant document first."""
    run, qrels = files(tmp_path, {}, {"q": {"a": 1}})
    run.write_text("q Q0 b 1 0.5 t\nq Q0 a 2 0.5 t\n")
    read = judged_run(run, qrels)
    assert Evaluation().add(read.ranked[0].question, read.ranked[0].ranks)["final"].expected["p@1"] == 0.5


def test_runs_of_other_documents_are_comparable_by_their_judgements(tmp_path: Path) -> None:
    """The better one wins, orders of other documents have no correlation, and other judgements are refused."""
    qrels = {"q1": {"a": 1, "b": 0}, "q2": {"c": 2}}
    first = records_of(judged_run(*files(tmp_path, {"q1": ["a", "x"], "q2": ["c"]}, qrels)))
    second = records_of(judged_run(*files(tmp_path, {"q1": ["x", "a"]}, qrels)))
    pair = ((Path("A"), first), (Path("B"), second))
    check_comparable(*pair)
    with pytest.raises(DataError, match="'q2'"):
        check_same_candidates(*pair)
    result = compare(first, second)
    assert (result.metrics["map"].wins, result.metrics["map"].mean_b) == (2, 25.0)
    assert (result.spearman, result.spearman_questions) == (-1.0, 1)
    other = records_of(judged_run(*files(tmp_path, {"q1": ["a"], "q2": ["c"]}, qrels | {"q2": {"c": 1}})))
    with pytest.raises(DataError, match="A and B have other candidates or labels for question 'q2'"):
        check_comparable(pair[0], (Path("B"), other))


def test_a_runs_scores_rank_the_candidates_of_a_data_set(tmp_path: Path) -> None:
    """Candidates by their ids, in the data's order; a document too few or too many is named."""
    rows = tuple(LabelledCandidate(Candidate(text=text), 0) for text in "xy")
    question = Question(id="7", text="t", candidates=rows)
    run = tmp_path / "run"
    run.write_text("7 Q0 7-2 1 0.75 t\n7 Q0 7-1 2 0.5 t\n8 Q0 other 1 1 t\n")
    (ranked,) = run_rankings(run, [question])
    assert (ranked.ranks["final"].tolist(), ranked.scores["final"].tolist()) == ([1, 0], [0.5, 0.75])
    for text, message in (
        ("7 Q0 7-2 1 0.75 t\n", "run has no score for document '7-1' of question '7'"),
        (run.read_text() + "7 Q0 7-3 3 0 t\n", "run: document '7-3' is not a candidate of question '7'"),
    ):
        run.write_text(text)
        with pytest.raises(DataError, match=message):
            list(run_rankings(run, [question]))


def test_beirs_qrels_judge_a_run(tmp_path: Path) -> None:
    """Three columns under their names give what TREC's four do; a bad line and a missing run are named."""
    run, qrels = files(tmp_path, {"q1": ["d1", "d2"]}, {"q1": {"d1": 0, "d2": 2}})
    (tmp_path / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t0\nq1\td2\t2\n")
    assert records_of(judged_run(run, tmp_path / "dev.tsv")) == records_of(judged_run(run, qrels))
    (tmp_path / "bad.tsv").write_text("query-id\tcorpus-id\tscore\nq1 d1 0\n")
    with pytest.raises(DataError, match=r"bad\.tsv:2: expected a query, a document and a grade, separated by tabs"):
        judged_run(run, tmp_path / "bad.tsv")
    with pytest.raises(DataError, match=r"gone\.trec: there is no such file$"):
        judged_run(tmp_path / "gone.trec", qrels)
