from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from cerberank_models.encoding import Candidate
from cerberank_training.data import (
    Articles,
    DataError,
    LabelledCandidate,
    Question,
    articles_path,
    data_files,
    read_questions,
    read_squad,
    subset,
)
from cerberank_training.data.wikiqa import COLUMNS

SQUAD = {
    "qid": "1",
    "question": "when?",
    "title": "Crisis",
    "para": 1,
    "answers": ["1973"],
    "candidates": [
        {"sent": 0, "text": "It began in 1973.", "label": 1, "astr": 1, "prev": "", "next": "It ended."},
        {"sent": 1, "text": "It ended.", "label": 0, "astr": 0, "prev": "It began in 1973.", "next": ""},
    ],
}
ARTICLE = {
    "title": "Crisis",
    "paragraphs": [
        ["A first sentence that is long.", "Short."],
        ["It began in 1973.", "It ended."],
        ["In 1973 oil rose to a high."],
    ],
}


def write_wikiqa(path: Path) -> Path:
    rows = [
        COLUMNS,
        ["Q1", "who?", "D1", "BeyoncÃ©", "D1-0", 'He said "no', "0"],
        ["Q1", "who?", "D1", "BeyoncÃ©", "D1-1", "She did.", "1"],
        ["Q2", "why?", "D2", "X", "D2-0", "Because.", "0"],
        ["Q3", "how?", "D3", "X", "D3-0", "So.", "1"],
    ]
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_wikiqa_is_read_with_quoting_off(tmp_path: Path) -> None:
    """A lone quotation mark swallows nothing; neighbours are context; the title is repaired."""
    questions = list(read_questions(f"wikiqa:{write_wikiqa(tmp_path / 'w.tsv')}"))
    assert [question.id for question in questions] == ["Q1", "Q2", "Q3"]
    first = questions[0]
    assert first.title == "Beyoncé"
    assert first.candidates[0].candidate.text == 'He said "no'
    assert first.candidates[1].candidate.previous == 'He said "no'
    assert first.labels == (0, 1)


def test_subsets_need_a_positive_and_a_negative(tmp_path: Path) -> None:
    """clean: a positive; strict: both."""
    questions = list(read_questions(f"wikiqa:{write_wikiqa(tmp_path / 'w.tsv')}"))
    assert [[q.id for q in subset(questions, name)] for name in ("raw", "clean", "strict")] == [
        ["Q1", "Q2", "Q3"],
        ["Q1", "Q3"],
        ["Q1"],
    ]


def squad_files(folder: Path) -> Path:
    with gzip.open(folder / "dev.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps(SQUAD) + "\n")
    with gzip.open(folder / "articles-dev.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps(ARTICLE) + "\n")
    return folder / "dev.jsonl.gz"


def test_squad_by_paragraph_and_by_article(tmp_path: Path) -> None:
    """By article every sentence is a candidate and only the paragraph's own labels count."""
    path = squad_files(tmp_path)
    (by_paragraph,) = read_questions(f"squad-as2:{path}")
    (by_article,) = read_questions(f"squad-as2-article:{path}")
    assert by_paragraph.labels == (1, 0)
    assert by_article.labels == (0, 0, 1, 0, 0)
    assert by_article.candidates[3].candidate.previous == "It began in 1973."


def test_article_negatives_leave_out_sentences_with_the_answer(tmp_path: Path) -> None:
    """Not the own paragraph, not a short fragment, not a sentence that holds a short answer."""
    path = squad_files(tmp_path)
    outside = Articles(articles_path(path)).outside(read_squad(path)[0])
    assert [candidate.text for candidate in outside] == ["A first sentence that is long."]


def test_asnq_reads_the_questions_of_a_list(tmp_path: Path) -> None:
    """In the file's order, whatever the list's; label 4 alone is positive; a listed question that is not there is an
    error.
    """
    (tmp_path / "dev.tsv").write_text("q one\tx\t1\nQ two\tx\t1\nQ two\ty\t4\nq three\tz\t3\n")
    (tmp_path / "unique.dev").write_text("q three\nq two\n")
    spec = f"asnq:{tmp_path / 'dev.tsv'}?questions=unique.dev"
    assert [(q.text, q.id, q.labels) for q in read_questions(spec)] == [
        ("Q two", "dev.tsv:1", (0, 1)),
        ("q three", "dev.tsv:2", (0,)),
    ]
    assert list(data_files(spec)) == ["dev.tsv", "unique.dev"]
    (tmp_path / "unique.dev").write_text("q three\nq four\n")
    with pytest.raises(DataError, match=r"dev\.tsv lacks 1 of the 2 questions that unique\.dev lists"):
        list(read_questions(spec))
    (tmp_path / "unique.dev").write_text("\n")
    with pytest.raises(DataError, match=r"unique\.dev lists no question"):
        list(read_questions(spec))


def test_generic_lines_are_read(tmp_path: Path) -> None:
    """Context, id and title are optional."""
    line = {
        "question": "q",
        "title": "t",
        "candidates": [{"text": "a", "label": 1, "next": "b"}, {"text": "b", "label": 0}],
    }
    (tmp_path / "g.jsonl").write_text("\n" + json.dumps(line) + "\n")
    (question,) = read_questions(f"jsonl:{tmp_path / 'g.jsonl'}")
    assert (question.id, question.title) == ("2", "t")
    assert question.candidates[0].candidate.next == "b"


def test_generic_lines_may_hold_half_an_emoji_and_nulls(tmp_path: Path) -> None:
    """A lone surrogate becomes U+FFFD, as in the service; a null is an absent value."""
    row = r'{"text": "a\ud83d", "label": 1, "previous": null, "next": null, "score": null}'
    (tmp_path / "g.jsonl").write_text(
        rf'{{"id": null, "title": null, "question": "\ud83d\ude00 q\udc00", "candidates": [{row}]}}'
    )
    (question,) = read_questions(f"jsonl:{tmp_path / 'g.jsonl'}")
    assert (question.id, question.text, question.title) == ("1", "\U0001f600 q\ufffd", "")
    assert question.candidates == (LabelledCandidate(Candidate(text="a\ufffd"), 1),)


def test_generic_lines_may_hold_more_than_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A whole number as id, a byte-order mark, further keys: read; one line counts what is ignored or odd."""
    rows = [{"text": "a", "label": 2, "score": 0.5, "docid": 7}, {"text": "\u200b", "label": 0, "docid": 8}]
    lines = [
        {"id": 0, "question": "q", "candidates": rows, "split": "a"},
        {"question": "r", "candidates": [{"text": "b", "label": 0}]},
        {"question": "", "candidates": [{"text": "b", "label": 1}]},
    ]
    path = tmp_path / "g.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8-sig")
    first, second, third = read_questions(f"jsonl:{path}")
    assert (first.id, second.id, third.id) == ("0", "2", "3")
    assert [(row.label, row.score) for row in first.candidates] == [(2, 0.5), (0, None)]
    notes = capsys.readouterr().err
    assert notes.startswith(f"jsonl:{path}: of 3 questions with 4 candidates: ")
    assert sorted(notes.strip().rpartition(": ")[2].split(", ")) == [
        "1 candidates without a text",
        "1 questions without a negative",
        "1 questions without a positive",
        "1 questions without a text",
        "1 values of 'split' (ignored)",
        "2 values of 'docid' (ignored)",
    ]


def test_ordinary_data_are_read_without_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is told where nothing was ignored or odd."""
    (tmp_path / "a.tsv").write_text("q one\tx\t1\nq one\ty\t4\n")
    assert len(list(read_questions(f"asnq:{tmp_path / 'a.tsv'}"))) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("spec", "content", "message"),
    [
        ("wikiqa", "one\ttwo\n", ":1: expected 7"),
        ("squad-as2", "{}\n", ":1: not a squad-as2 question"),
        ("squad-as2", json.dumps({**SQUAD, "candidates": []}), ":1: .*a question needs a candidate"),
        (
            "squad-as2",
            json.dumps({**SQUAD, "candidates": [{"text": "a", "prev": None, "next": None, "label": 2}]}),
            ":1: .*labels are 0 or 1",
        ),
        ("asnq", "q\ts\t1\nq\ts\t5\n", ":2: expected question"),
        ("jsonl", '{"question": "q", "candidates": [{"text": "a", "label": -1}]}\n', r":1: candidates\.0\.label"),
        ("jsonl", '{"id": 1, "question": "q", "candidates": [{"text": "a", "label": 1}]}\n' * 2, ":2: .*comes twice"),
        ("jsonl", "\n", "holds no question"),
        ("jsonl", "[\n", ":1: is not JSON: .*; a line holds one whole object$"),
        ("jsonl", "\n[]\n", ":2: is not an object; a line holds one whole object$"),
        ("rows", "{\n", ":1: is not JSON: .*; a line holds one whole object$"),
        ("jsonl", '{"question": " ", "candidates": [{"text": "a", "label": 1}]}\n', "no question, or no candidate"),
    ],
)
def test_a_bad_row_is_named(spec: str, content: str, message: str, tmp_path: Path) -> None:
    """File and line, and what was expected."""
    (tmp_path / "bad").write_text(content)
    with pytest.raises(DataError, match=message):
        list(read_questions(f"{spec}:{tmp_path / 'bad'}"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("wikiqa", "data is named FORMAT:PATH"),
        ("excel:x", "data is named FORMAT:PATH"),
        ("jsonl:gone.jsonl", "^gone.jsonl: there is no such file$"),
        ("csv:gone.csv?names=question,text,label", "^gone.csv: there is no such file$"),
        ("parquet:gone.parquet", "^gone.parquet: there is no such file$"),
        ("jsonl:.", "^.: Is a directory$"),
    ],
)
def test_a_wrong_spec_is_a_data_error(spec: str, message: str) -> None:
    """No format, an unknown one, and what is not a file, in words and without its name twice."""
    with pytest.raises(DataError, match=message):
        list(read_questions(spec))


def test_a_text_that_is_relevant_and_not_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In pairs, lists and `pos` with `neg`; both candidates are kept, and grades above 0 are not contradiction."""
    (tmp_path / "d.csv").write_text("question,text,label\nq,The Rhine,1\nq,the  rhine,0\nq,a,1\nq,a,2\nq,b,0\n")
    rows = [{"text": "The Rhine", "label": 1}, {"text": "The Rhine", "label": 0}, {"text": "", "label": 0}]
    (tmp_path / "d.jsonl").write_text(json.dumps({"question": "q", "candidates": [*rows, {"text": "", "label": 1}]}))
    (tmp_path / "rows.jsonl").write_text(json.dumps({"query": "q", "pos": ["a", "b"], "neg": ["b", "c"]}))
    for spec, labels in (
        (f"csv:{tmp_path / 'd.csv'}", (1, 0, 1, 2, 0)),
        (f"jsonl:{tmp_path / 'd.jsonl'}", (1, 0, 0, 1)),
        (f"rows:{tmp_path / 'rows.jsonl'}", (1, 1, 0, 0)),
    ):
        assert [question.labels for question in read_questions(spec)] == [labels]
        assert "1 texts with two labels" in capsys.readouterr().err


def counts(questions: list[Question]) -> tuple[int, int, int]:
    return len(questions), sum(len(q.candidates) for q in questions), sum(sum(q.labels) for q in questions)


def test_wikiqas_published_counts(shared_data: Path) -> None:
    """Raw, clean and strict test sets as papers print them."""
    questions = list(read_questions(f"wikiqa:{shared_data / 'wikiqa' / 'WikiQA-test.tsv.gz'}"))
    assert counts(questions) == (633, 6165, 293)
    assert counts(subset(questions, "clean")) == (243, 2351, 293)
    assert counts(subset(questions, "strict")) == (237, 2341, 283)


def test_squads_counts(shared_data: Path) -> None:
    """The test set by paragraph."""
    assert counts(list(read_questions(f"squad-as2:{shared_data / 'squad-as2' / 'test.jsonl.gz'}"))) == (
        4905,
        24982,
        5216,
    )
