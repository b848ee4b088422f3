"""BEIR folders, which the test writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tests.program import program

from cerberank_training.data import DataError, corpus_texts, open_questions, read_questions
from cerberank_training.data.sampling import ExampleOptions, sampler_for

sample = program("data sample")

CORPUS = [
    {"_id": "d1", "title": "Rhine", "text": "a long river", "metadata": {}},
    {"_id": "d2", "title": "", "text": "a deep lake"},
    {"_id": "d3", "text": "a river in Egypt is long"},
]
QUERIES = [{"_id": "1", "text": "long river", "metadata": {}}, {"_id": "2", "text": "deep lake"}]
QRELS = "query-id\tcorpus-id\tscore\n1\td1\t2\n1\td2\t0\n2\td2\t1\n2\tgone\t1\n"


def write_beir(folder: Path, *, packed: bool = False) -> Path:
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", CORPUS), ("queries", QUERIES)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        if packed:
            (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"{name}.jsonl").write_text(text.rstrip("\n"))
    (folder / "qrels" / "test.tsv").write_text(QRELS)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_judged_documents_are_candidates(tmp_path: Path, packed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """With grades; the text begins with the title; a relevant document that is not there is missed, and told."""
    first, second = open_questions(f"beir:{write_beir(tmp_path / 'b', packed=packed)}")
    assert [(row.candidate.text, row.label) for row in first.candidates] == [
        ("Rhine a long river", 2),
        ("a deep lake", 0),
    ]
    assert (second.text, second.labels, second.missed) == ("deep lake", (1,), (1,))
    notes = capsys.readouterr().err
    assert "1 judged documents that the corpus lacks" in notes
    assert "1 questions without a negative" in notes


def test_what_other_tools_write_is_read_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Null titles, blank lines, half an emoji, a judgement that is repeated, a judged query without a text."""
    folder = write_beir(tmp_path / "b")
    lines = [r'{"_id": "d0", "title": null, "text": "half \ud83d"}', *map(json.dumps, CORPUS)]
    (folder / "corpus.jsonl").write_text("\n\n".join([*lines, ""]))
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n\n" for row in QUERIES))
    (folder / "qrels" / "test.tsv").write_text("\n" + QRELS + "1\td0\t1\n\n2\td2\t1\n9\td2\t1\n")
    first, second = read_questions(f"beir:{folder}")
    assert [row.candidate.text for row in first.candidates] == ["Rhine a long river", "a deep lake", "half \ufffd"]
    assert second.labels == (1,)
    notes = capsys.readouterr().err
    assert "1 judgements that come twice" in notes
    assert "1 judged queries without a text (left out)" in notes
    (folder / "run.txt").write_text("\n1 Q0 d0 1 9.0 t\n\n")
    (judged,) = read_questions(f"beir:{folder}?run=run.txt")
    assert judged.labels == (1,)
    (folder / "corpus.jsonl").write_text("\n\n".join([*lines, lines[0]]))
    with pytest.raises(DataError, match=r"corpus\.jsonl:9: the document 'd0' comes twice"):
        list(read_questions(f"beir:{folder}"))


def test_a_run_or_bm25_gives_candidates(tmp_path: Path) -> None:
    """The best k of a run file, or of BM25 over the corpus."""
    folder = write_beir(tmp_path / "b")
    (folder / "run.txt").write_text("1 Q0 d3 1 9.0 t\n1 Q0 d1 2 8.0 t\n2 Q0 d2 1 7.0 t\n")
    assert [q.labels for q in read_questions(f"beir:{folder}?run=run.txt&k=2")] == [(0, 2), (1,)]
    first, _ = read_questions(f"beir:{folder}?run=bm25&k=2&split=test")
    assert sorted(row.candidate.text for row in first.candidates) == ["Rhine a long river", "a river in Egypt is long"]
    assert corpus_texts(f"beir:{folder}") == ["Rhine a long river", "a deep lake", "a river in Egypt is long"]


def test_unjudged_copies_are_no_negatives_of_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Training leaves out copies of a relevant document, also of one that the run has missed; figures keep them."""
    folder = write_beir(tmp_path / "b")
    rows = [*CORPUS, {"_id": "d4", "text": "rhine A long  river"}, {"_id": "d5", "text": "A DEEP LAKE"}]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = "1 Q0 d4 1 9.0 t\n1 Q0 d5 2 8.0 t\n1 Q0 d3 3 7.0 t\n2 Q0 d5 1 9.0 t\n"
    (folder / "run.txt").write_text(run)
    spec = f"beir:{folder}?run=run.txt"
    first, second = read_questions(spec)
    assert [row.id for row in first.candidates] == ["d4", "d5", "d3"]
    assert (first.labels, first.missed, second.labels, second.missed) == ((0, 0, 0), (2,), (0,), (1, 1))
    assert "2 unjudged copies of a relevant document" in capsys.readouterr().err
    (trained,) = open_questions(spec, training=True)
    assert [row.candidate.text for row in trained.candidates] == ["A DEEP LAKE", "a river in Egypt is long"]
    assert trained.missed == (2,)
    assert "2 unjudged copies of a relevant document (left out)" in capsys.readouterr().err
    assert [len(question.candidates) for question in open_questions(spec)] == [3, 1]


def test_groups_for_training_hold_no_unjudged_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`sample` draws from what training reads."""
    folder, out = write_beir(tmp_path / "b"), tmp_path / "groups.jsonl"
    rows = [*CORPUS, {"_id": "d4", "text": "rhine A long  river"}]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = f"beir:{folder}?run=bm25&k=4"
    assert "rhine A long  river" in {row.candidate.text for each in read_questions(spec) for row in each.candidates}
    assert sample(["--recipe", "mini", "--train", spec, "--questions", "8", "--out", str(out)]) == 0
    assert f"{out} holds 8 groups and " in capsys.readouterr().err
    assert "a river in Egypt is long" in out.read_text()
    assert "rhine A long  river" not in out.read_text()


@pytest.mark.parametrize(
    ("file", "content", "options", "message"),
    [
        ("qrels/dev.tsv", QRELS, "", "there are: dev, test"),
        ("qrels/test.tsv", QRELS, "?split=train", "it has no train.tsv"),
        (
            "qrels/test.tsv",
            "1 0 d1 1\n",
            "",
            r"test\.tsv:1: expected a query, a document and a grade, sep",
        ),
        ("qrels/test.tsv", QRELS + "2\td2\t0\n", "", r"test\.tsv:6: the document 'd2' has two grades .*, 1 and 0"),
        ("qrels/test.tsv", "9\td2\t1\n", "", "no judged query has a candidate"),
        ("qrels/test.tsv", "1\tgone\t1\n", "", "no judged query has a candidate"),
        ("corpus.jsonl", '{"_id": "d1"}\n', "", r"corpus\.jsonl:1: text: Field required"),
        ("corpus.jsonl", '{"_id": "d1", "text": "a"}\n' * 2, "", r"corpus\.jsonl:2: the document 'd1' comes twice"),
        ("run.txt", "1 Q0 d9 1 9.0 t\n", "?run=run.txt", "1 documents of the run are missing, such as 'd9'"),
        ("run.txt", "", "?k=3", "k is of a run"),
    ],
)
def test_what_does_not_fit_is_named(file: str, content: str, options: str, message: str, tmp_path: Path) -> None:
    """Files, lines, ids and options."""
    folder = write_beir(tmp_path / "b")
    (folder / file).write_text(content)
    with pytest.raises(DataError, match=message):
        list(read_questions(f"beir:{folder}{options}"))


def test_the_folder_may_be_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`beir:.` is as good: its name is looked up for the table, and no articles lie beside it."""
    monkeypatch.chdir(write_beir(tmp_path / "b"))
    questions = open_questions("beir:.")
    assert len(sampler_for("beir:.", questions, ExampleOptions(), seed=1)) == 2
