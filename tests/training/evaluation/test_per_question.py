from __future__ import annotations

import json
from pathlib import Path

import pytest

from cerberank_models.encoding import Candidate
from cerberank_training.data import DataError, LabelledCandidate, Question
from cerberank_training.evaluation.per_question import candidates_hash, read_records

LINE = {"id": "1", "candidates": "x", "labels": [1, 0], "rankings": {"final": {"metrics": {}, "ranks": [0, 1]}}}


def question(text: str, *candidates: str, context: str = "") -> Question:
    rows = tuple(LabelledCandidate(Candidate(text=candidate, previous=context), 0) for candidate in candidates)
    return Question(id="q", text=text, candidates=rows)


def test_the_hash_is_of_the_texts_and_where_they_begin() -> None:
    """The hash depends on question, texts, their boundaries and order, and not on context."""
    hashes = {
        candidates_hash(question(*texts)) for texts in (("q", "ab"), ("q", "a", "b"), ("qa", "b"), ("q", "b", "a"))
    }
    assert len(hashes) == 4
    assert candidates_hash(question("q", "ab", context="c")) in hashes
    assert candidates_hash(question("\ud800", "a")) != candidates_hash(question("\ud801", "a"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "2", ', r"q\.jsonl:2: is not JSON: "),
        (json.dumps(LINE), r"q\.jsonl:2: question '1' comes twice"),
        (json.dumps({**LINE, "id": "2", "labels": [1, 0, 0]}), r"q\.jsonl:2: .*2 ranks or scores for 3 labels"),
        (json.dumps({**LINE, "id": "2", "rankings": {}}), r"q\.jsonl:2: no ranking 'final'"),
        (json.dumps(LINE).replace('"1"', '"2"').replace("{}", '{"map": NaN}'), r"q\.jsonl:2: .*finite"),
    ],
)
def test_a_broken_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    """The error names the file and the line number."""
    (tmp_path / "q.jsonl").write_text(json.dumps(LINE) + "\n" + line + "\n")
    with pytest.raises(DataError, match=message):
        read_records(tmp_path / "q.jsonl")


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    """A file without questions is an error, because it has no means."""
    (tmp_path / "q.jsonl").touch()
    with pytest.raises(DataError, match="holds no question"):
        read_records(tmp_path / "q.jsonl")
