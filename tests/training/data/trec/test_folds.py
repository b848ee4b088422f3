"""Folds: both file formats, and that every query is tested once and never trained on in its own split."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_training.data import DataError
from cerberank_training.data.trec.folds import read_folds, splits


def test_lines_and_json_give_the_same_folds(tmp_path: Path) -> None:
    """A fold a line, or Anserini's list of lists, with numbers or strings."""
    (tmp_path / "f.txt").write_text("301 302\n303\n304 305\n")
    (tmp_path / "f.json").write_text('[["301", 302], ["303"],\n ["304", "305"]]')
    assert (
        read_folds(tmp_path / "f.txt") == read_folds(tmp_path / "f.json") == (("301", "302"), ("303",), ("304", "305"))
    )


@given(sizes=st.lists(st.integers(1, 4), min_size=3, max_size=7))
def test_every_query_is_tested_once_by_a_model_that_has_not_seen_it(sizes: list[int]) -> None:
    """In each split the parts are disjoint and hold all queries; so do all tests together, and all devs."""
    folds = tuple(tuple(f"{fold}.{i}" for i in range(size)) for fold, size in enumerate(sizes))
    everything = sorted(query for fold in folds for query in fold)
    for split in splits(folds):
        assert sorted((*split.train, *split.dev, *split.test)) == everything
    assert sorted(query for split in splits(folds) for query in split.test) == everything
    assert sorted(query for split in splits(folds) for query in split.dev) == everything


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.txt", "1\n2\n", "2 folds, and cross-validation needs three"),
        ("f.txt", "1\n\n2\n", r"fold 2 \(line 2"),
        ("f.txt", "1\n2 3\n4 1\n", "query '1' is in fold 1 and in fold 3"),
        ("f.json", '[["1"],\n["2"],\n["3"]', "f.json:3: "),
        ("f.json", '["1", "2", "3"]', "f.json:1: expected a list of folds"),
    ],
)
def test_a_bad_file_is_named(name: str, content: str, message: str, tmp_path: Path) -> None:
    """File, and line or fold."""
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_folds(tmp_path / name)
