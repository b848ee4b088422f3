"""A collection becomes questions: judged documents or a run's, grades, what a run has missed, parts of a split."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training.data.trec.collections import QRELS, TOPICS, write_collection

from cerberank_training.data import DataError, read_questions


def labels(spec: str) -> dict[str, tuple[int, ...]]:
    return {question.id: question.labels for question in read_questions(spec)}


def test_judged_documents_are_candidates_with_their_grades(tmp_path: Path) -> None:
    """In the order of the qrels; negative grades are 0; a judged document that is not there is missed."""
    rivers, lakes = read_questions(f"trec:{write_collection(tmp_path)}")
    assert (rivers.id, rivers.text, lakes.id, lakes.text) == ("301", "long rivers", "21", "lakes & seas")
    assert [(row.candidate.text, row.label) for row in rivers.candidates] == [
        ("Rhine A long river & a border.", 2),
        ("The sea and long rivers", 1),
        ("A lake that is deep", 0),
    ]
    assert rivers.missed == (1,)
    assert lakes.labels == (1, 0)


def test_what_the_collection_lacks_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A judged query without a topic, as in BEIR, and a judged document."""
    folder = write_collection(tmp_path)
    (folder / "judged").write_text(QRELS + "999 0 N-1 1\n")
    assert labels(f"trec:{folder}?qrels=judged") == labels(f"trec:{folder}")
    notes = capsys.readouterr().err.splitlines()[0]
    assert "1 judged queries without a text (left out)" in notes
    assert "1 judged documents that the corpus lacks" in notes


def test_a_runs_documents_are_candidates_best_first(tmp_path: Path) -> None:
    """By score, then rank; unjudged ones are not relevant; relevant ones beyond k are missed."""
    spec = f"trec:{write_collection(tmp_path)}?run=run.txt&k="
    rivers, lakes = read_questions(spec + "3")
    assert [row.candidate.text[:10] for row in rivers.candidates] == ["The sea an", "A lake tha", "Nile A riv"]
    assert (rivers.labels, sorted(rivers.missed)) == ((1, 0, 0), [1, 2])
    assert (lakes.labels, lakes.missed) == ((1, 0), ())
    assert labels(spec + "1") == {"301": (1,), "21": (1,)}


def test_unjudged_copies_are_marked(tmp_path: Path) -> None:
    """Training leaves out copies of a relevant document that the run has missed."""
    folder = write_collection(tmp_path)
    (folder / "docs.tsv").write_text("r\tA Long river\nc\ta  long river\nn\tno river\n")
    (folder / "few").write_text("301 0 r 1\n")
    (folder / "run.txt").write_text("301 Q0 c 1 9.0 tag\n301 Q0 n 2 8.0 tag\n")
    spec = f"trec:{folder}?documents=docs.tsv&qrels=few&run=run.txt"
    (question,) = read_questions(spec)
    assert [(row.id, row.label, row.copy) for row in question.candidates] == [("c", 0, True), ("n", 0, False)]
    (trained,) = read_questions(spec, training=True)
    assert [row.id for row in trained.candidates] == ["n"]


def test_bm25_is_computed_on_the_spot(tmp_path: Path) -> None:
    """Its best documents that share a word with the title."""
    folder = write_collection(tmp_path)
    (folder / "queries.topics").write_text(TOPICS.replace("lakes &amp;", "lake &amp;"))
    rivers, lakes = read_questions(f"trec:{folder}?run=bm25&k=2")
    assert [row.candidate.text[:10] for row in rivers.candidates] == ["The sea an", "Rhine A lo"]
    assert (rivers.labels, rivers.missed) == ((1, 2), (1,))
    assert lakes.labels == (0, 1)


def test_files_may_have_other_names(tmp_path: Path) -> None:
    """The options name them; TSV queries are as good, and latin-1 text is read when it is named."""
    folder = write_collection(tmp_path)
    (folder / "other.tsv").write_bytes("21\tla mer à côté\n".encode("latin-1"))
    (folder / "other.docs.tsv").write_bytes("N-2\tla mer\nJ-3\tle lac\n".encode("latin-1"))
    (folder / "bm25+rm3.txt").write_text("21 Q0 J-3 1 2.0 tag\n")
    (folder / "judged").write_text("".join(QRELS.splitlines(keepends=True)[4:]))
    spec = f"trec:{folder}?queries=other.tsv&documents=other.docs.tsv&qrels=judged&encoding="
    (question,) = read_questions(spec + "latin-1")
    assert question.text == "la mer à côté"
    assert labels(f"{spec}latin-1&run=bm25+rm3.txt") == {"21": (0,)}
    with pytest.raises(DataError, match=r"other\.tsv:1: is not UTF-8: "):
        list(read_questions(spec + "utf-8"))


def test_a_query_that_bm25_finds_nothing_for_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Words are not stemmed: "lakes" and "seas" stand in no document."""
    (question,) = read_questions(f"trec:{write_collection(tmp_path)}?run=bm25")
    assert question.id == "301"
    assert "1 queries left out, without any candidate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("?run", "expected key=value"),
        ("?run=a&run=b", "each key once"),
        ("?k=5", "k is of a run"),
        ("?rum=x", "trec has no option 'rum'; it has run, k, queries"),
        ("?k=0", "k: Input should be greater"),
        ("?encoding=none", "encoding: .*unknown encoding"),
        ("?queries=gone", "needs one entry gone; the option queries names it"),
        ("?run=gone", "gone: there is no such file$"),
        ("?run=far.txt", "1 documents of the run are missing, such as 'X-9'"),
        ("?run=short.txt", "no judged query has a candidate"),
        ("?qrels=none.txt", "no judged query has a candidate"),
    ],
)
def test_what_does_not_fit_is_named(options: str, message: str, tmp_path: Path) -> None:
    """Unknown options, missing files and documents."""
    folder = write_collection(tmp_path)
    (folder / "far.txt").write_text("301 Q0 X-9 1 2.0 tag\n21 Q0 N-2 1 2.0 tag\n")
    (folder / "short.txt").write_text("400 Q0 N-1 1 2.0 tag\n")
    (folder / "none.txt").write_text("21 0 gone 1\n")
    with pytest.raises(DataError, match=message):
        list(read_questions(f"trec:{folder}{options}"))


def test_two_files_that_could_be_meant_are_an_error(tmp_path: Path) -> None:
    """None is chosen silently."""
    folder = write_collection(tmp_path)
    (folder / "qrels.other").write_text(QRELS)
    with pytest.raises(DataError, match=r"needs one entry qrels\*"):
        list(read_questions(f"trec:{folder}"))
