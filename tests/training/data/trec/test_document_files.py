"""Documents, queries, judgements, runs: what is read, and that what cannot be is named with file and line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.training.data.trec.collections import NEWS, TOPICS, write_collection

from cerberank_training.data import DataError
from cerberank_training.data.trec.document_files import read_documents
from cerberank_training.data.trec.judgements import read_qrels, read_run
from cerberank_training.data.trec.markup import plain
from cerberank_training.data.trec.queries import read_queries

READERS: dict[str, Callable[[Path], object]] = {
    "documents": lambda path: list(read_documents(path)),
    "queries": read_queries,
    "qrels": read_qrels,
    "run": read_run,
}


def test_a_folder_of_documents_in_all_formats(tmp_path: Path) -> None:
    """Files in the order of their paths, below each other too; title before text; several TEXT elements joined."""
    texts = dict(read_documents(write_collection(tmp_path) / "documents"))
    assert list(texts) == ["J-1", "J-2", "J-3", "T-1", "N-1", "N-2"]
    assert texts["J-1"] == "Nile A river that nobody judged"
    assert texts["N-1"] == "Rhine A long river & a border."
    assert texts["N-2"] == "A lake that is deep"


def test_a_title_is_the_one_before_the_text(tmp_path: Path) -> None:
    """A tag of that name within the text is not a second title; a document without text is an empty one."""
    (tmp_path / "d").write_text(
        "<DOC><DOCNO>1</DOCNO><TEXT>one <TI>two</TI></TEXT></DOC>\n<doc><docno>2</docno><H3><TI>three</TI></H3></doc>\n"
        "<DOC><DOCNO>3</DOCNO></DOC>\n"
    )
    assert [text for _, text in read_documents(tmp_path / "d")] == ["one two", "three", ""]


def test_markup_becomes_plain_text() -> None:
    """Tags, comments over lines and character references; a comparison sign is not a tag."""
    assert plain("a<!-- x\ny -->b <F P=105>c</F> &lt;d&gt; 1 < 2 > 0") == "a b c <d> 1 < 2 > 0"


def test_topics_and_tsv_give_the_same_queries(tmp_path: Path) -> None:
    """Titles over several lines, closed or not, with and without the words before them, zeros before the number."""
    (tmp_path / "topics").write_text(TOPICS)
    with gzip.open(tmp_path / "q.tsv.gz", "wt") as file:
        file.write("301\tlong rivers\r\n21\tlakes & seas\n400\tunjudged\n")
    assert read_queries(tmp_path / "topics") == read_queries(tmp_path / "q.tsv.gz")
    assert list(read_queries(tmp_path / "topics")) == ["301", "21", "400"]


def test_blank_lines_and_null_titles_are_nothing(tmp_path: Path) -> None:
    """Such as those that editors and exports leave; a judgement that is repeated is the same judgement."""
    for name, content in {
        "d.jsonl": '\n{"id": "1", "title": null, "text": "a"}\n\n',
        "q.tsv": "1\ta\n\n",
        "qrels": "\n1 0 a 1\n \n1 0 a 1\n",
        "run": "1 Q0 a 1 2.0 t\n\n",
    }.items():
        (tmp_path / name).write_text(content)
    assert list(read_documents(tmp_path / "d.jsonl")) == [("1", "a")]
    assert read_queries(tmp_path / "q.tsv") == {"1": "a"}
    assert read_qrels(tmp_path / "qrels") == {"1": {"a": 1}}
    assert read_run(tmp_path / "run") == {"1": ["a"]}


def test_a_run_is_ordered_by_score_and_then_rank(tmp_path: Path) -> None:
    """Whatever the order of its lines."""
    (tmp_path / "run").write_text("1 Q0 c 3 1.0 t\n1 Q0 b 2 1.0 t\n2 Q0 c 1 -1 t\n1 Q0 a 9 2.0 t\n")
    assert read_run(tmp_path / "run") == {"1": ["a", "b", "c"], "2": ["c"]}


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("documents", "d.jsonl", '{"id": "1", "text": "a"}\n{"id": "2"}\n', ":2: text: Field required"),
        ("documents", "d.jsonl", '{"id": "1", "text": "a"}\n' * 2, ":2: the document '1' comes twice"),
        ("documents", "d.tsv", "1\ta\n2\n", ":2: expected a document's id and its text"),
        ("documents", "d", NEWS + "text\n", ":12: expected <DOC>"),
        ("documents", "d", NEWS.replace("</DOC>\n\n", "\n"), ":1: <DOC> has no </DOC> before the next one in line 10"),
        ("documents", "d", NEWS + "<DOC>\n", ":12: <DOC> has no </DOC>"),
        ("documents", "d", NEWS.replace("<DOCNO>N-2</DOCNO>", ""), ":11: the document has no <DOCNO>"),
        ("documents", "d", "\n", ": no <DOC>"),
        ("queries", "q.tsv", "1\ta\n2\t \n", ":2: expected a query's id and its text"),
        ("queries", "q.tsv", "1\ta\n1\tb\n", ":2: the query '1' comes twice"),
        ("queries", "q", TOPICS.replace("<title> unjudged", ""), ":13: the topic has no <num> or no <title>"),
        ("queries", "q", TOPICS.replace("<num> Number: 400", ""), ":13: the topic has no <num>"),
        ("qrels", "q", "1 0 a 1\n1 0 b\n", ":2: expected a query, 0, a document and a grade"),
        ("qrels", "q", "1 0 a 1\n1 0 b x\n", ":2: the grade 'x' is not a whole number"),
        ("qrels", "q", "1 0 a 1\n1 0 a 0\n", ":2: the document 'a' has two grades for query '1', 1 and 0"),
        ("run", "r", "1 Q0 a 1 2.0\n", ":1: expected a query, Q0"),
        ("run", "r", "1 Q0 a 1 2.0 t\n1 Q0 b 2 x t\n", ":2: could not convert"),
        ("run", "r", "1 Q0 a 1 nan t\n", ":1: the score 'nan' is not a finite number"),
        ("run", "r", "1 Q0 a 1 2.0 t\n1 Q0 a 2 1.0 t\n", ":2: the document 'a' comes twice for query '1'"),
    ],
)
def test_a_bad_row_is_named(kind: str, name: str, content: str, message: str, tmp_path: Path) -> None:
    """File and line, and what was expected."""
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=f"{name}{message}"):
        READERS[kind](tmp_path / name)
