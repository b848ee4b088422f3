"""MS MARCO's triples, of texts and of ids."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import cerberank_training.data
import cerberank_training.data.formats.joined
from cerberank_training.data import DataError, read_questions
from cerberank_training.data.formats.joined import APART


def collection(folder: Path, *, packed: bool = False) -> str:
    (folder / "ids.tsv").write_text("7\t10\t12\n8\t11\t10\n7\t12\t11\n")
    (folder / "queries.tsv").write_text("7\tseven ?\n8\teight ?\n")
    text = "10\tten\n11\televen \n12\ttwelve"
    (folder / ("c.tsv.gz" if packed else "c.tsv")).write_bytes(
        gzip.compress(text.encode()) if packed else text.encode()
    )
    return f"msmarco:{folder / 'ids.tsv'}?collection=c.tsv{'.gz' if packed else ''}&queries=queries.tsv"


def texts(spec: str) -> list[tuple[str, ...]]:
    return [(q.text, *(row.candidate.text for row in q.candidates)) for q in read_questions(spec)]


def test_the_lines_of_a_query_are_a_question(tmp_path: Path) -> None:
    """With each positive and negative once, in the order of the lines; `first` reads no further."""
    (tmp_path / "t.tsv").write_text("q\tyes\tno\nr\ta\tb\n\nq\tyes\tnever\nbroken\n")
    first, second = read_questions(f"msmarco:{tmp_path / 't.tsv'}?first=3")
    assert (first.id, first.text, second.id, second.text) == ("1", "q", "2", "r")
    assert [(row.candidate.text, row.label) for row in first.candidates] == [("yes", 1), ("no", 0), ("never", 0)]
    with pytest.raises(DataError, match=r"t\.tsv:5: expected a query, a positive and a negative"):
        texts(f"msmarco:{tmp_path / 't.tsv'}")


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_of_ids_reads_the_collection(tmp_path: Path, packed: bool) -> None:
    """Passages are looked up in any order, compressed or not."""
    assert texts(collection(tmp_path, packed=packed)) == [
        ("seven ?", "ten", "twelve", "twelve", "eleven "),
        ("eight ?", "eleven ", "ten"),
    ]


def test_lines_that_are_far_apart_are_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: in a file of any size lines that follow each other are joined, and others are counted."""
    monkeypatch.setattr(cerberank_training.data.formats.joined, "MOST_HELD", 1)
    (tmp_path / "t.tsv").write_text("q\tyes\tno\nq\tyes\tnever\nr\ta\tb\nq\tyes\tlate\n")
    spec, notes = f"msmarco:{tmp_path / 't.tsv'}", list[str]()
    read = [(q.id, len(q.candidates)) for q in read_questions(spec, report=notes.append)]
    assert read == [("1", 3), ("3", 2), ("4", 2)]
    assert notes == [f"{spec}: of 3 questions with 7 candidates: 1 {APART}"]


@pytest.mark.parametrize(
    ("file", "content", "options", "message"),
    [
        ("ids.tsv", "7\t10\t99\n", "?collection=c.tsv&queries=queries.tsv", r"ids\.tsv:1: the id '99' is not in"),
        ("ids.tsv", "9\t10\t11\n", "?collection=c.tsv&queries=queries.tsv", r"ids\.tsv:1: the id '9' is not in"),
        ("ids.tsv", "", "", "holds no triple"),
        ("c.tsv", "10 ten\n", "?collection=c.tsv&queries=queries.tsv", r"c\.tsv:1: expected a passage's id"),
        ("c.tsv", "10\ta\n10\tb\n", "?collection=c.tsv&queries=queries.tsv", r"c\.tsv:2: the id '10' comes twice"),
        ("c.tsv", "", "?collection=c.tsv&queries=queries.tsv", r"c\.tsv: .*empty"),
        ("ids.tsv", "", "?collection=c.tsv", "collection and queries go together"),
    ],
)
def test_what_does_not_fit_is_named(file: str, content: str, options: str, message: str, tmp_path: Path) -> None:
    """Lines and unknown ids."""
    collection(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=message):
        texts(f"msmarco:{tmp_path / 'ids.tsv'}{options}")
