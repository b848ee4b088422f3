"""TrecQA's lines of JSON, on files made here: the released ones were not at hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from cerberank_training.data import DataError, read_questions

PAIRS = [
    ("Who wrote Carmen ?", "Bizet wrote it .", 1),
    ("Who wrote Carmen ?", "<num> seats are sold .", 0),
    ("How tall ?", "Bees fly .", 0),
]


def test_a_line_is_a_question_with_its_candidates(tmp_path: Path) -> None:
    """Labels, order, equal questions as one, and no question without a candidate."""
    rows = [
        *({"question": q, "candidates": [{"label": label, "sentence": text}]} for q, text, label in PAIRS),
        {"question": "Nobody answers ?", "candidates": []},
    ]
    path = tmp_path / "dev-filtered.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    questions = list(read_questions(f"trecqa:{path}"))
    assert [(each.text, row.candidate.text, row.label) for each in questions for row in each.candidates] == PAIRS
    assert len(questions) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", "a.jsonl holds no question"),
        ('{"question": "q"}\n', "a.jsonl:1: expected a question, and candidates with answer"),
        ('{"question": "q", "candidates": ["a"]}\n', "a.jsonl:1: expected a question, and candidates"),
        ('{"question": "q", "candidates": [{"answer": "a", "label": 2}]}\n', "a.jsonl:1: the label is 0 or 1, not '2'"),
        ("{\n", "a.jsonl:1: "),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str, tmp_path: Path) -> None:
    """File and line; nothing is left out silently."""
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(DataError) as raised:
        list(read_questions(f"trecqa:{tmp_path / 'a.jsonl'}"))
    assert message in str(raised.value)
