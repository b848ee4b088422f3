"""Rows of a program are read as the same rows in a file are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

from cerberank_training.data import DataError, Question, read_questions
from cerberank_training.data.in_memory import named_data

ROWS = [
    {"query": "who wrote it ?", "passage": "ä \u2028 did", "relevance": 1, "score": 0.123456789012, "previous": None},
    {"query": "who wrote it ?", "passage": "nobody", "relevance": 0, "score": 1e-9, "previous": "a line\nand a second"},
    {"query": "when ?", "passage": "in 1900", "relevance": 2, "score": -3.5, "previous": ""},
]
LISTS = [
    {"query": "who ?", "passage": ["she did", "it rained"], "relevance": [1, 0]},
    {"query": "when ?", "passage": ["in 1900"], "relevance": [1]},
]


def read(spec: str) -> list[Question]:
    return list(read_questions(spec, report=lambda line: None))


def of_file(rows: list[dict[str, Any]], path: Path) -> list[Question]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(f"rows:{path}")


@pytest.mark.parametrize("rows", [ROWS, LISTS], ids=["pairs", "lists"])
@pytest.mark.parametrize("made", [list, iter, pd.DataFrame, datasets.Dataset.from_list], ids=str)
def test_the_questions_are_those_of_a_file(
    rows: list[dict[str, Any]], made: Callable[[list[dict[str, Any]]], Any], tmp_path: Path
) -> None:
    """Texts, grades, scores and missing values, with columns by their known names."""
    assert read(named_data(made(rows), tmp_path / "data.jsonl")) == of_file(rows, tmp_path / "file.jsonl")


def test_values_of_numpy_are_numbers(tmp_path: Path) -> None:
    """Also whole columns in arrays, as pandas reads them from Parquet."""
    arrays = [{name: np.asarray(value) if name != "query" else value for name, value in row.items()} for row in LISTS]
    wanted = of_file(LISTS, tmp_path / "file.jsonl")
    assert read(named_data(arrays, tmp_path / "data.jsonl")) == wanted
    assert read(named_data(pd.DataFrame(arrays), tmp_path / "frame.jsonl")) == wanted


def test_documents_have_paragraphs(tmp_path: Path) -> None:
    for number, data in enumerate(([{"paragraphs": [["a", "b"]]}], pd.DataFrame({"paragraphs": [[["a", "b"]]]}))):
        form, _, path = named_data(data, tmp_path / f"{number}.jsonl").partition(":")
        assert form == "articles"
        assert json.loads(Path(path).read_text()) == {"paragraphs": [["a", "b"]]}


def test_questions_with_candidates_are_the_generic_format(tmp_path: Path) -> None:
    lines = [{"question": "who ?", "candidates": [{"text": "she did", "label": 1, "next": "why"}]}]
    for number, data in enumerate((lines, pd.DataFrame(lines))):
        (question,) = read(named_data(data, tmp_path / f"{number}.jsonl"))
        assert (question.candidates[0].candidate.next, question.candidates[0].label) == ("why", 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "not of type int"),
        ({"query": ["who ?"]}, "not of type dict"),
        (["who ?"], "not items of type str"),
        ([{"query": "who ?", "passage": {1}, "relevance": 1}], "holds a set"),
        ([], "holds no row"),
        ([{"query": "who ?", "passage": "she", "relevance": "x"}], r"data\.jsonl:1: "),
    ],
    ids=["number", "columns", "texts", "set", "empty", "label"],
)
def test_what_is_no_data_is_refused(data: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read(named_data(data, tmp_path / "data.jsonl"))
