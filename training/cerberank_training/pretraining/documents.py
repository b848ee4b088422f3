"""Documents of paragraphs of sentences, as context-aware pre-training reads them; `read_documents("articles:PATH")`.

- `articles`: a line of JSON each, `{"title": ..., "paragraphs": [[sentence, ...], ...]}`, perhaps compressed (`.gz`).
- `text`: a file, or all files of a folder; one sentence a line, a blank line between paragraphs, two or more between
  documents. A file begins a new document.
- `datasets`: a folder of Hugging Face's `Dataset.save_to_disk`, where that library is installed. A row is a document,
  with a column `paragraphs` as in `articles`, or `text` as in a text file.

Texts are not split into sentences here. All documents are held in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerberank_training.data.question import DataError, read_lines
from cerberank_training.data.source_files import files_of

SHORTEST_SENTENCE, SHORTEST_PARAGRAPH, SHORTEST_DOCUMENT = 20, 60, 200
"""Characters; what is shorter is left out (SSP section 5)."""

Paragraph = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """Paragraphs of sentences."""

    paragraphs: tuple[Paragraph, ...]


def read_documents(spec: str) -> list[Document]:
    """The documents of `FORMAT:PATH` that are long enough. Raises DataError for what cannot be read."""
    name, separator, path = spec.partition(":")
    if not separator or name not in READERS:
        raise DataError(f"documents are named FORMAT:PATH with FORMAT one of {', '.join(READERS)}, not {spec!r}")
    kept = (long_enough(paragraphs) for paragraphs in READERS[name](Path(path)))
    return [document for document in kept if document is not None]


def long_enough(paragraphs: Iterable[Sequence[str]]) -> Document | None:
    """The document without what is too short, or None when too little remains.

    Sentences are left out first, then paragraphs, and each is measured as what remains of it, joined by blanks.
    """
    kept = []
    for paragraph in paragraphs:
        sentences = tuple(text for each in paragraph if len(text := each.strip()) >= SHORTEST_SENTENCE)
        if len(" ".join(sentences)) >= SHORTEST_PARAGRAPH:
            kept.append(sentences)
    length = len(" ".join(text for sentences in kept for text in sentences))
    return Document(paragraphs=tuple(kept)) if length >= SHORTEST_DOCUMENT else None


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
        for document in re.split(r"\n{3,}", "\n".join(line.strip() for _, line in read_lines(file))):
            yield _text_paragraphs(document)


def _read_datasets(path: Path) -> Iterator[Sequence[Sequence[str]]]:
    try:
        from datasets import load_from_disk  # noqa: PLC0415 - no dependency of the project
    except ImportError as error:
        raise DataError("documents of the format `datasets` need the library of that name: install it") from error
    try:
        rows: Iterable[Mapping[str, Any]] = load_from_disk(str(path))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error
    if isinstance(rows, Mapping):
        raise DataError(f"{path} holds several splits: name the folder of one, such as {path / next(iter(rows), '')}")
    for number, row in enumerate(rows, start=1):
        try:
            yield _paragraphs(row["paragraphs"]) if "paragraphs" in row else _text_paragraphs(row["text"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}, row {number}: neither paragraphs nor text ({error!r})") from error


def _paragraphs(value: Any) -> Sequence[Sequence[str]]:
    """`value`, checked to be lists of strings."""
    if not isinstance(value, list) or not all(isinstance(each, list) for each in value):
        raise TypeError("paragraphs are lists of sentences")
    if not all(isinstance(text, str) for paragraph in value for text in paragraph):
        raise TypeError("sentences are strings")
    return value


def _text_paragraphs(text: str) -> Sequence[Sequence[str]]:
    """The paragraphs of a text with a sentence a line and blank lines between paragraphs."""
    return [block.splitlines() for block in re.split(r"\n\s*\n", text) if block.strip()]


READERS: dict[str, Callable[[Path], Iterator[Sequence[Sequence[str]]]]] = {
    "articles": _read_articles,
    "text": _read_text,
    "datasets": _read_datasets,
}
