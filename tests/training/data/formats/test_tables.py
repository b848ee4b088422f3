"""Rows of columns, in files that csv, pyarrow and the library `datasets` wrote."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cerberank_training.data
from cerberank_training.data import DataError, Question, open_questions, read_questions
from cerberank_training.data.formats import tables

PAIRS = [
    {"query": "what, now ?", "passage": 'the "best" one', "label": 1, "score": 2.5},
    {"query": "who ?", "passage": "somebody", "label": 3, "score": 0.25},
    {"query": "what, now ?", "passage": "two\nlines", "label": 0, "score": -1.0},
]
LISTS = [
    {"query": "what, now ?", "passages": ['the "best" one', "two\nlines"], "labels": [1, 0], "scores": [2.5, -1.0]},
    {"query": "who ?", "passages": ["somebody"], "labels": [3], "scores": [0.25]},
]
TRIPLETS = [
    {"anchor": "what ?", "positive": "this", "negative_2": "c", "negative_1": "b", "negative_10": "d"},
    {"anchor": "who ?", "positive": "she", "negative_2": None, "negative_1": "e", "negative_10": None},
]
Rows = list[dict[str, Any]]


def as_csv(folder: Path, rows: Rows) -> str:
    with (folder / "d.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return f"csv:{folder / 'd.csv'}"


def as_json(folder: Path, rows: Rows) -> str:
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"rows:{folder / 'd.jsonl'}"


def as_parquet(folder: Path, rows: Rows) -> str:
    """A folder of two files."""
    (folder / "d").mkdir()
    for number, part in enumerate((rows[:1], rows[1:])):
        pq.write_table(
            pa.Table.from_pylist(part, schema=pa.Table.from_pylist(rows).schema), folder / f"d/{number}.parquet"
        )
    return f"parquet:{folder / 'd'}"


def as_dataset(folder: Path, rows: Rows) -> str:
    datasets.Dataset.from_list(rows).save_to_disk(str(folder / "d"))
    return f"datasets:{folder / 'd'}"


def content(questions: Any) -> list[Any]:
    return [(q.text, [(row.candidate.text, row.label, row.score) for row in q.candidates]) for q in questions]


WRITERS = [as_csv, as_json, as_parquet, as_dataset]
EXPECTED = [
    ("what, now ?", [('the "best" one', 1, 2.5), ("two\nlines", 0, -1.0)]),
    ("who ?", [("somebody", 3, 0.25)]),
]


@pytest.mark.parametrize("write", WRITERS)
def test_a_row_may_be_a_pair(write: Callable[[Path, Rows], str], tmp_path: Path) -> None:
    """Pairs of a question become its candidates, wherever they stand; grades and scores are kept."""
    spec = write(tmp_path, PAIRS)
    assert content(read_questions(spec)) == EXPECTED
    assert content(open_questions(spec)) == EXPECTED


@pytest.mark.parametrize("write", WRITERS[1:])
def test_a_row_may_be_a_question_with_lists(write: Callable[[Path, Rows], str], tmp_path: Path) -> None:
    """The same questions as from pairs."""
    assert content(read_questions(write(tmp_path, LISTS))) == EXPECTED


@pytest.mark.parametrize("write", WRITERS[1:])
def test_a_row_may_have_a_positive_and_numbered_negatives(write: Callable[[Path, Rows], str], tmp_path: Path) -> None:
    """sentence-transformers' shape: negatives in the order of their numbers, and fewer where a row has fewer."""
    assert content(read_questions(write(tmp_path, TRIPLETS))) == [
        ("what ?", [("this", 1, None), ("b", 0, None), ("c", 0, None), ("d", 0, None)]),
        ("who ?", [("she", 1, None), ("e", 0, None)]),
    ]


@pytest.mark.parametrize("write", WRITERS)
def test_rows_of_positives_and_negatives_are_joined(write: Callable[[Path, Rows], str], tmp_path: Path) -> None:
    """A question comes once, by its id if there is one, with each candidate once."""
    triplets = [("q", "yes", "no"), ("r", "a", "b"), ("q", "yes", "never")]
    rows: Rows = [{"anchor": q, "positive": p, "negative": n, "query_id": f"id {q}"} for q, p, n in triplets]
    first, second = read_questions(write(tmp_path, rows))
    assert content([first]) == [("q", [("yes", 1, None), ("no", 0, None), ("never", 0, None)])]
    assert (first.id, second.id) == ("id q", "id r")


@pytest.mark.parametrize("write", WRITERS)
def test_values_that_are_not_read_are_counted(write: Callable[[Path, Rows], str], tmp_path: Path) -> None:
    """By the names of their columns, whatever the shape; a column `prev` is not the context."""
    for number, (rows, expected) in enumerate(
        [
            ([{**PAIRS[1], "prev": "p", "n": 1}] * 2, "2 values of 'prev' (ignored), 2 values of 'n' (ignored)"),
            ([{"query": "q", "positive": "p", "negative": "n", "label": 1}], "1 values of 'label' (ignored)"),
        ]
    ):
        folder, notes = tmp_path / str(number), list[str]()
        folder.mkdir()
        list(read_questions(write(folder, rows), report=notes.append))
        assert expected in notes[0]


def test_a_field_may_be_longer_than_pythons_limit(tmp_path: Path) -> None:
    """A long document in CSV and TSV is as good as in JSON lines."""
    text = "long " * 40_000
    for form, comma in (("csv", ","), ("tsv", "\t")):
        (tmp_path / form).write_text(comma.join(["question", "text", "label"]) + "\n" + comma.join(["q", text, "1"]))
        (question,) = read_questions(f"{form}:{tmp_path / form}")
        assert question.candidates[0].candidate.text == text


def test_rows_may_hold_half_an_emoji(tmp_path: Path) -> None:
    """A lone surrogate becomes U+FFFD in texts and ids, as in the generic form, and a pair stays."""
    row = r'{"qid": "\udc00", "question": "\ud83d\ude00", "text": "a\ud83d b", "label": 1}'
    (tmp_path / "d.jsonl").write_text(row)
    (question,) = read_questions(f"rows:{tmp_path / 'd.jsonl'}")
    assert (question.id, question.text, question.candidates[0].candidate.text) == ("\ufffd", "\U0001f600", "a\ufffd b")


def test_booleans_and_missing_values_of_pandas_are_read(tmp_path: Path) -> None:
    """`True` and `False` are labels; an empty score and a null context are none."""
    (tmp_path / "d.csv").write_text("question,text,label,score\nq,a,True,\nq,b,False,0.5\nq,c,TRUE,1\n")
    (question,) = read_questions(f"csv:{tmp_path / 'd.csv'}")
    assert [(row.label, row.score) for row in question.candidates] == [(1, None), (0, 0.5), (1, 1.0)]
    (question,) = read_questions(as_json(tmp_path, [{**PAIRS[0], "score": None, "previous": None, "next": "n"}]))
    assert [(row.score, row.candidate.previous, row.candidate.next) for row in question.candidates] == [(None, "", "n")]


def test_positives_and_negatives_may_be_lists_with_scores(tmp_path: Path) -> None:
    """FlagEmbedding's lines: query, pos, neg, pos_scores, neg_scores."""
    row = {"query": "q", "pos": ["a", "b"], "neg": ["c"], "pos_scores": [3, 2.5], "neg_scores": [0.5]}
    assert content(read_questions(as_json(tmp_path, [row]))) == [("q", [("a", 1, 3.0), ("b", 1, 2.5), ("c", 0, 0.5)])]


def test_options_name_columns_and_what_is_relevant(tmp_path: Path) -> None:
    """Other names, an id, context, and labels that are numbers: relevant from the threshold on, and kept as scores."""
    (tmp_path / "d.tsv").write_text('7\thow "so ?\tyes\t0.75\tbefore\tafter\n7\thow "so ?\tno\t0.5\t\t\n')
    options = "names=n,q,a,judged,p,f&id=n&question=q&text=a&label=judged&previous=p&next=f&threshold=0.6"
    (question,) = read_questions(f"tsv:{tmp_path / 'd.tsv'}?{options}")
    assert (question.id, question.text) == ("7", 'how "so ?')
    assert [(row.label, row.score) for row in question.candidates] == [(1, 0.75), (0, 0.5)]
    assert (question.candidates[0].candidate.previous, question.candidates[0].candidate.next) == ("before", "after")


def test_a_split_is_named(tmp_path: Path) -> None:
    """A folder of several splits; without the option they are listed."""
    parts = {name: datasets.Dataset.from_list(LISTS[start:]) for name, start in (("train", 0), ("dev", 1))}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "d"))
    assert content(read_questions(f"datasets:{tmp_path / 'd'}?split=dev")) == EXPECTED[1:]
    with pytest.raises(DataError, match="split=NAME names one of train, dev"):
        list(read_questions(f"datasets:{tmp_path / 'd'}"))


LABEL, TEXT, FLAG = datasets.Value("int64"), datasets.Value("string"), datasets.Value("bool")
HUB = {
    "lucadiliello/news_as2": {"question": TEXT, "answer": TEXT, "label": LABEL},
    "AmazonScience/asnq": {
        **{"question": TEXT, "sentence": TEXT, "label": datasets.ClassLabel(names=["neg", "pos"])},
        **{"sentence_in_long_answer": FLAG, "short_answer_in_sentence": FLAG},
    },
    "microsoft/wiki_qa": {
        **{"question_id": TEXT, "question": TEXT, "document_title": TEXT, "answer": TEXT},
        "label": datasets.ClassLabel(names=["0", "1"]),
    },
}
"""The columns of public data sets on the hub, by their cards."""


@pytest.mark.parametrize("name", HUB)
def test_the_sets_of_the_hub_need_no_options(name: str, tmp_path: Path) -> None:
    """The first of two pairs of a question is right."""
    columns = HUB[name]
    values = {"string": ["one", "two"], "int64": [1, 0], "bool": [True, False]}
    rows = {column: values[kind.dtype] for column, kind in columns.items()}
    rows |= {column: ["same", "same"] for column in ("question", "question_id") if column in columns}
    part = datasets.Dataset.from_dict(rows, features=datasets.Features(columns))
    datasets.DatasetDict({"test": part}).save_to_disk(str(tmp_path / "d"))
    questions = list(read_questions(f"datasets:{tmp_path / 'd'}?split=test"))
    assert content(questions) == [("same", [("one", 1, None), ("two", 0, None)])]


def test_a_large_table_streams_pairs_that_stand_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted pairs give the same questions; a question that returns is named, not made a second group."""
    monkeypatch.setattr(tables, "LARGE", 1)
    ordered = [PAIRS[0], PAIRS[2], PAIRS[1]]
    (tmp_path / "sorted").mkdir()
    assert content(read_questions(as_csv(tmp_path / "sorted", ordered))) == EXPECTED
    with pytest.raises(DataError, match=r"d\.csv:4: rows of the question 'what, now \?' do not stand together"):
        list(read_questions(as_csv(tmp_path, PAIRS)))


def test_a_table_beside_the_data_belongs_to_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large data read with other options are another table, not the one that is there."""
    monkeypatch.setattr(cerberank_training.data, "LARGE", 1)
    spec = as_csv(tmp_path, [{"q": "q", "a": "x", "b": "y", "label": 1}])
    first, second = (open_questions(f"{spec}?question=q&text={name}") for name in "ab")
    texts: list[Question] = [first[0], second[0]]
    assert [question.candidates[0].candidate.text for question in texts] == ["x", "y"]
    assert len(list(tmp_path.glob("d.csv.*.arrow"))) == 2


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("question,text\nq,a\n", "", r"d:1: which column is the label\? label=NAME names one of 'question', 'text'"),
        ("question,text,answer,label\nq,a,b,1\n", "", "several columns may be the text: 'text', 'answer'"),
        ("question,text,label\nq,a,1\n", "?text=b", "there is no column 'b' for text"),
        ("question,text,label\nq,a,1\n", "?txt=b", "csv has no option 'txt'; it has id, question, text,.* names$"),
        ("question,text,label\nq,a,0.5\n", "", r"d:2: the label '0.5' is not a whole number"),
        ("question,text,label\nq,a,1\nq,b\n", "", r"d:3: expected 3 columns, not 2"),
        ("question,text,label,score\nq,a,1,inf\n", "", r"d:2: 'score' holds 'inf', which is not a finite number"),
        ('question,text,label\nq,"a,1\n', "", r"d:2: unexpected end of data"),
        ("qid,question,text,label\n1,q,a,1\n1,r,b,0\n", "", r"d:3: the question id '1' has two texts"),
        ("question,question,label\n", "", "each once"),
        ("question;text;label\nq;a;1\n", "", r"d:1: there is one column alone; commas separate the columns of csv"),
        ("question,text,label\n", "", "holds no row"),
        ("question,positive\nq,a\n", "", "which column is the negative"),
        ("qid,query,pos,neg\n1,q,a,b\n1,r,a,b\n", "", r"d:3: the question id '1' has two texts"),
    ],
)
def test_a_wrong_row_is_named(content: str, options: str, message: str, tmp_path: Path) -> None:
    """File and line, and the columns that there are."""
    (tmp_path / "d").write_text(content)
    with pytest.raises(DataError, match=message):
        list(read_questions(f"csv:{tmp_path / 'd'}{options}"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"query": "q", "docs": ["a", "b"], "labels": [1]}], "row 1: 'docs' and 'labels' are not lists of equal"),
        ([*LISTS, {**LISTS[0], "scores": [1.0]}], r"row 3: 'scores' has 1 scores for 2 texts"),
        ([{"query": None, "passage": "a", "label": 1}], r"row 1: 'query' holds None"),
        ([{"anchor": "q", "positive": None, "negative": "a"}], r"row 1: 'positive' holds no text"),
    ],
)
def test_a_wrong_row_of_a_data_set_is_named(rows: Rows, message: str, tmp_path: Path) -> None:
    """By its number, in Parquet and in a data set."""
    (tmp_path / "p").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p" / "d.parquet")
    for spec in (f"parquet:{tmp_path / 'p' / 'd.parquet'}", as_dataset(tmp_path, rows)):
        with pytest.raises(DataError, match=message):
            list(read_questions(spec))


@pytest.mark.parametrize(("encoding", "line", "byte"), [("latin-1", 2, 3), ("utf-16", 1, 0)])
def test_a_file_in_another_encoding_is_named(encoding: str, line: int, byte: int, tmp_path: Path) -> None:
    """As spreadsheets write it."""
    (tmp_path / "d").write_bytes("question,text,label\ncafé,a,1\n".encode(encoding))
    with pytest.raises(DataError, match=rf"d:{line}: is not UTF-8: .* at byte {byte}$"):
        list(read_questions(f"csv:{tmp_path / 'd'}"))


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    """A file that is not Parquet, lines that are not objects, a folder that `save_to_disk` has not written."""
    (tmp_path / "d").write_text('{"question": "q", "text": "a", "label": 1}\n{"question": "q"}\n')
    for spec, message in (
        ("parquet:d", "d: "),
        ("rows:d", "d:2: the row has no 'label'"),
        ("datasets:", "datasets:"),
        ("datasets:gone", "there is no such folder, and it is not a name on the hub"),
        ("parquet:", "holds no Parquet file"),
    ):
        name, _, path = spec.partition(":")
        with pytest.raises(DataError, match=message):
            list(read_questions(f"{name}:{tmp_path / path}"))
