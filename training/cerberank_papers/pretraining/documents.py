"""Reads documents for context-aware pre-training, such as `read_documents("articles:PATH")`, as paragraphs of
sentences.

- `articles`: a document on each line, `{"title": ..., "paragraphs": [[sentence, ...], ...]}`; the file may be
  compressed (`.gz`).
- `text`: a file, or all files of a folder, with a sentence on each line, a blank line between paragraphs, and two or
  more blank lines between documents. Each file begins a new document.

Documents are read one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerberank_training.data.question import DataError, read_lines
from cerberank_training.data.source_files import files_of

SHORTEST_SENTENCE, SHORTEST_PARAGRAPH, SHORTEST_DOCUMENT = 20, 60, 200
"""The least numbers of characters; shorter sentences, paragraphs and documents are left out (SSP section 5)."""

Paragraph = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """Paragraphs of sentences."""

    paragraphs: tuple[Paragraph, ...]


def read_documents(spec: str) -> Iterator[Document]:
    """The documents of `FORMAT:PATH` that are long enough. Raises DataError; an error of the spec is raised at once."""
    name, separator, path = spec.partition(":")
    if not separator or name not in READERS:
        raise DataError(f"documents are named FORMAT:PATH with FORMAT one of {', '.join(READERS)}, not {spec!r}")
    documents = map(long_enough, READERS[name](Path(path)))
    return (document for document in documents if document is not None)


def long_enough(paragraphs: Iterable[Sequence[str]]) -> Document | None:
    """The document without its short sentences and paragraphs, or None if too little remains.

    Short sentences are removed first. The lengths of paragraphs and of the document are those of the remaining texts,
    joined by blanks.
    """
    long = []
    for paragraph in paragraphs:
        sentences = tuple(text for each in paragraph if len(text := each.strip()) >= SHORTEST_SENTENCE)
        if len(" ".join(sentences)) >= SHORTEST_PARAGRAPH:
            long.append(sentences)
    length = len(" ".join(text for sentences in long for text in sentences))
    return Document(paragraphs=tuple(long)) if length >= SHORTEST_DOCUMENT else None


def _read_articles(path: Path) -> Iterator[Sequence[Sequence[str]]]:
    for number, line in read_lines(path):
        try:
            yield _paragraphs(json.loads(line)["paragraphs"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}:{number}: not an article ({error!r})") from error


def _read_text(path: Path) -> Iterator[Sequence[Sequence[str]]]:
    files = files_of(path)
    if not files:
        raise DataError(f"{path} holds no file")
    for file in files:
        paragraphs: list[list[str]] = [[]]
        blanks = 0
        for _, line in read_lines(file, blank=True):
            if not (text := line.strip()):
                blanks += 1
                continue
            if blanks > 1:
                yield paragraphs
                paragraphs = [[]]
            elif blanks:
                paragraphs.append([])
            paragraphs[-1].append(text)
            blanks = 0
        yield paragraphs


def _paragraphs(value: Any) -> Sequence[Sequence[str]]:
    """Return `value` if it is a list of lists of strings."""
    if not isinstance(value, list) or not all(isinstance(each, list) for each in value):
        raise TypeError("paragraphs are lists of sentences")
    if not all(isinstance(text, str) for paragraph in value for text in paragraph):
        raise TypeError("sentences are strings")
    return value


READERS: dict[str, Callable[[Path], Iterator[Sequence[Sequence[str]]]]] = {
    "articles": _read_articles,
    "text": _read_text,
}
