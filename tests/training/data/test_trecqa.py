"""TrecQA's forms, on files made here: the released ones were not at hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cerberank_training.data import DataError, Question, read_questions

BLOCKS = """<QApairs id='1.1'>
<question>
Who\twrote\tCarmen\t?
WP\tVBD\tNNP\t.
</question>
<positive>
Bizet\twrote\tit\t.
NNP\tVBD\tPRP\t.
3\t0\t1\t2
</positive>
<negative>
<num>\tseats\tare\tsold\t.
CD\tNNS\tVBP\tVBN\t.
</negative>
</QApairs>
<QApairs id='1.2'>
<question>
How\ttall\t?
</question>
<negative>
Bees\tfly\t.
</negative>
</QApairs>
<QApairs id='1.3'>
<question>
Nobody\tanswers\t?
</question>
</QApairs>
"""
PAIRS = [
    ("1.1", "Who wrote Carmen ?", "Bizet wrote it .", 1),
    ("1.1", "Who wrote Carmen ?", "<num> seats are sold .", 0),
    ("1.2", "How tall ?", "Bees fly .", 0),
]


def folder(path: Path) -> Path:
    path.mkdir()
    for name, column in zip(("id.txt", "a.toks", "b.toks", "sim.txt"), zip(*PAIRS, strict=True), strict=True):
        (path / name).write_text("".join(f"{value}\n" for value in column))
    return path


def written(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


FORMS: dict[str, Callable[[Path], Path]] = {
    "xml": lambda path: written(path / "TEST.xml", BLOCKS),
    "xml.gz": lambda path: written(path / "train2393.cleanup.xml.gz", BLOCKS),
    "folder": lambda path: folder(path / "raw-test"),
    "jsonl": lambda path: written(  # *-filtered.jsonl of TANDA
        path / "a.jsonl",
        "".join(
            json.dumps({"candidates": [{"label": v, "sentence": a} for _, q, a, v in rows], "question": rows[0][1]})
            + "\n"
            for rows in (PAIRS[:2], PAIRS[2:])
        ),
    ),
}


def contents(questions: list[Question]) -> list[tuple[str, str, int]]:
    return [(each.text, row.candidate.text, row.label) for each in questions for row in each.candidates]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_questions(form: str, tmp_path: Path) -> None:
    """Words between blanks, annotation left out, labels, order, and no question without a candidate."""
    questions = list(read_questions(f"trecqa:{FORMS[form](tmp_path)}"))
    assert contents(questions) == [pair[1:] for pair in PAIRS]
    if form in {"xml", "folder"}:
        assert [each.id for each in questions] == ["1.1", "1.2"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.xml", BLOCKS.replace("</positive>\n", ""), "a.xml:6: <positive> does not end"),
        ("a.xml", BLOCKS.replace("</QApairs>\n", "", 1), "a.xml:15: <QApairs> '1.1' does not end, or comes twice"),
        ("a.xml", BLOCKS.replace("1.2", "1.1"), "a.xml:16: <QApairs> '1.1' does not end, or comes twice"),
        ("a.xml", BLOCKS.replace("</QApairs>\n<QApairs id='1.3'>\n", ""), "a.xml:23: '<question>' is out of place"),
        ("a.xml", BLOCKS + "<QApairs id='4'>\n", "a.xml: <QApairs> '4' does not end"),
        ("a.xml", "\n", "a.xml holds no question"),
        ("a.jsonl", '{"question": "q"}\n', "a.jsonl:1: expected a question, and candidates with answer"),
        ("a.jsonl", '{"question": "q", "candidates": ["a"]}\n', "a.jsonl:1: expected a question, and candidates"),
        (
            "a.jsonl",
            '{"question": "q", "candidates": [{"answer": "a", "label": 2}]}\n',
            "a.jsonl:1: the label is 0 or 1, not '2'",
        ),
        ("a.jsonl", "{\n", "a.jsonl:1: "),
        ("a.txt", "q\n", "a.txt: TrecQA is a folder, or a file whose name ends in xml, jsonl"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    """File and line; nothing is left out silently."""
    with pytest.raises(DataError) as raised:
        list(read_questions(f"trecqa:{written(tmp_path / name, text)}"))
    assert message in str(raised.value)


def test_files_of_a_folder_must_have_equally_many_lines(tmp_path: Path) -> None:
    """Otherwise labels would belong to other pairs."""
    path = folder(tmp_path / "raw-dev")
    (path / "sim.txt").write_text("1\n0\n")
    with pytest.raises(DataError, match="equally many lines"):
        list(read_questions(f"trecqa:{path}"))
