"""Documents from each format, and what is left out because it is too short."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from datasets import Dataset, DatasetDict
from hypothesis import given
from hypothesis import strategies as st
from tests.training.pretraining.documents import articles, documents, paragraphs

from cerberank_training.data import DataError
from cerberank_training.pretraining.documents import long_enough, read_documents


def as_text(number: int, sizes: list[int]) -> str:
    return "\n\n".join("\n".join(sentences) for sentences in paragraphs(number, sizes))


def test_articles_are_read_plain_and_compressed(tmp_path: Path) -> None:
    """The same documents from both files, in the order of the file."""
    spec = articles(tmp_path, count=2)
    packed = tmp_path / "articles.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "articles.jsonl").read_bytes()))
    expected = documents([[3, 5, 4, 4]] * 2)
    assert read_documents(spec) == expected
    assert read_documents(f"articles:{packed}") == expected


def test_text_is_split_at_blank_lines(tmp_path: Path) -> None:
    """One blank line parts paragraphs, two part documents, and so does a new file; lines may end in blanks."""
    one, two, three = (as_text(number, [3, 4]) for number in range(3))
    (tmp_path / "1.txt").write_text(f"{one}\n\n \n{two}\n".replace(".\n", ".  \n"))
    (tmp_path / "2.txt").write_text(three)
    expected = documents([[3, 4]] * 3)
    assert read_documents(f"text:{tmp_path}") == expected
    assert read_documents(f"text:{tmp_path / '1.txt'}") == expected[:2]


@pytest.mark.parametrize("column", ["paragraphs", "text"])
def test_hugging_face_datasets_are_read(column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the library's `load_from_disk`, here a stand-in for it, with either column."""
    stand_in = ModuleType("datasets")
    content = {"paragraphs": paragraphs(0, [3, 4]), "text": as_text(0, [3, 4])}[column]
    monkeypatch.setattr(stand_in, "load_from_disk", lambda path: [{column: content}] * int(path), raising=False)
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    assert read_documents("datasets:2") == documents([[3, 4]]) * 2


def test_a_dataset_of_several_splits_is_refused(tmp_path: Path) -> None:
    """Saved by the library itself; the message names the folder of a split, which can be read."""
    split = Dataset.from_dict({"paragraphs": [paragraphs(0, [3, 4])]})
    DatasetDict(train=split, test=split).save_to_disk(str(tmp_path / "all"))
    with pytest.raises(DataError, match=r"all holds several splits: name the folder of one, such as .*all.train"):
        read_documents(f"datasets:{tmp_path / 'all'}")
    assert read_documents(f"datasets:{tmp_path / 'all' / 'train'}") == documents([[3, 4]])


def test_without_the_library_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` is no dependency of the project."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="`datasets` need the library"):
        read_documents("datasets:folder")


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ([[19, 40, 20], [200]], [[40, 20], [200]]),
        ([[20, 38], [30, 29], [200]], [[30, 29], [200]]),
        ([[100, 99]], [[100, 99]]),
        ([[100, 98]], None),
        ([[100], [99]], [[100], [99]]),
        ([], None),
    ],
)
def test_short_texts_are_left_out(sizes: list[list[int]], kept: list[list[int]] | None) -> None:
    """Sentences of fewer than 20 characters, then paragraphs below 60, then documents below 200, each at its limit."""
    document = long_enough([["x" * size for size in paragraph] for paragraph in sizes])
    found = None if document is None else [[len(text) for text in paragraph] for paragraph in document.paragraphs]
    assert found == kept


@given(st.lists(st.lists(st.integers(0, 250).map(lambda size: "x" * size), max_size=4), max_size=4))
def test_what_is_kept_is_long_enough(texts: list[list[str]]) -> None:
    """Nothing below a limit stays, whatever was left out before; filtering twice changes nothing."""
    if document := long_enough(texts):
        assert all(len(sentence) >= 20 for paragraph in document.paragraphs for sentence in paragraph)
        assert all(len(" ".join(paragraph)) >= 60 for paragraph in document.paragraphs)
        assert len(" ".join(" ".join(paragraph) for paragraph in document.paragraphs)) >= 200
        assert long_enough(document.paragraphs) == document


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}", "KeyError"),
        ('{"paragraphs": "text"}', "lists of sentences"),
        ('{"paragraphs": [[1]]}', "sentences are strings"),
        ("[", "JSONDecodeError"),
    ],
)
def test_a_line_that_is_no_article_is_named(line: str, message: str, tmp_path: Path) -> None:
    """File and number of the line, and what is wrong."""
    spec = articles(tmp_path, count=1)
    with (tmp_path / "articles.jsonl").open("a") as file:
        file.write(f"{line}\n{json.dumps({})}\n")
    with pytest.raises(DataError, match=rf"articles.jsonl:2: not an article .*{message}"):
        read_documents(spec)


@pytest.mark.parametrize("spec", ["articles", "pdf:file", "text:missing.txt"])
def test_what_cannot_be_read_is_refused(spec: str) -> None:
    """No path, an unknown format, no file."""
    with pytest.raises(DataError):
        read_documents(spec)
