"""Documents from each format, and what is left out because it is too short."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from tests.papers.pretraining.documents import articles, documents, paragraphs

from cerberank_papers.pretraining import document_table
from cerberank_papers.pretraining.document_table import DocumentTable, open_documents
from cerberank_papers.pretraining.documents import Document, long_enough, read_documents
from cerberank_papers.pretraining.spans import CONTEXTS
from cerberank_training.data import DataError, arrow_files


def list_of(spec: str) -> list[Document]:
    return list(read_documents(spec))


def as_text(number: int, sizes: list[int]) -> str:
    return "\n\n".join("\n".join(sentences) for sentences in paragraphs(number, sizes))


def test_articles_are_read_plain_and_compressed(tmp_path: Path) -> None:
    """The same documents from both files, in the order of the file."""
    spec = articles(tmp_path, count=2)
    packed = tmp_path / "articles.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "articles.jsonl").read_bytes()))
    expected = documents([[3, 5, 4, 4]] * 2)
    assert list_of(spec) == expected
    assert list_of(f"articles:{packed}") == expected


def test_text_is_split_at_blank_lines(tmp_path: Path) -> None:
    """One blank line parts paragraphs, two part documents, and so does a new file; lines may end in blanks."""
    one, two, three = (as_text(number, [3, 4]) for number in range(3))
    (tmp_path / "1.txt").write_text(f"{one}\n\n \n{two}\n".replace(".\n", ".  \n"))
    (tmp_path / "2.txt").write_text(three)
    expected = documents([[3, 4]] * 3)
    assert list_of(f"text:{tmp_path}") == expected
    assert list_of(f"text:{tmp_path / '1.txt'}") == expected[:2]


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
        list_of(spec)


@pytest.mark.parametrize("spec", ["articles", "pdf:file", "text:missing.txt"])
def test_what_cannot_be_read_is_refused(spec: str) -> None:
    """No path, an unknown format, no file."""
    with pytest.raises(DataError):
        list_of(spec)


def everything(table: DocumentTable, sizes: list[list[int]]) -> list[Document]:
    return [
        Document(paragraphs=tuple(table.paragraph(number, place) for place in range(len(each))))
        for number, each in enumerate(sizes)
    ]


def test_large_documents_are_read_from_a_table_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same paragraphs and places as in memory, in several batches; read once, and again when a file changes."""
    sizes = [[3, 1, 4], [5, 3], [2, 2, 3]]
    (tmp_path / "texts").mkdir()
    for number, each in enumerate(sizes):
        (tmp_path / "texts" / f"{number}.txt").write_text(as_text(number, each))
    spec, table = f"text:{tmp_path / 'texts'}", tmp_path / "texts.documents.arrow"
    held = open_documents(spec)
    assert not table.exists()
    monkeypatch.setattr(document_table, "LARGE", 1)
    monkeypatch.setattr(arrow_files, "BATCH_CHARACTERS", 1)
    mapped = open_documents(spec)
    written = table.stat().st_mtime_ns
    assert len(mapped) == len(held) == len(sizes)
    kept = [
        [size for size in each if size > 1] for each in sizes
    ]  # a single sentence is not a paragraph of 60 characters
    assert everything(mapped, kept) == everything(held, kept) == list(read_documents(spec))
    for context in CONTEXTS:
        expected = [
            (number, place)
            for number, each in enumerate(kept)
            for place, size in enumerate(each)
            if size >= (2 if context == "sdc" else 3) and (place or context != "sdc")
        ]
        for each in (held, mapped):
            assert list(zip(*map(np.ndarray.tolist, each.places(context)), strict=True)) == expected
    open_documents(spec)
    assert table.stat().st_mtime_ns == written
    (tmp_path / "texts" / "3.txt").write_text(as_text(3, [4, 4]))
    assert len(open_documents(spec)) == len(sizes) + 1
