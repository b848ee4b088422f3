"""Reads documents for context-aware pre-training, such as `read_documents("articles:PATH")`, as paragraphs of
sentences.

- `articles`: a document on each line, `{"title": ..., "paragraphs": [[sentence, ...], ...]}`; the file may be
  compressed (`.gz`).
- `text`: a file, or all files of a folder, with a sentence on each line, a blank line between paragraphs, and two or
  more blank lines between documents. Each file begins a new document.
- `datasets`: a folder that `Dataset.save_to_disk` of Hugging Face's library wrote. A row is a document, with a column
  `paragraphs` as in `articles`, or `text` as in a text file.

`?sentences=en` splits plain text into sentences with the library sentencex. Then the lines of a paragraph are joined,
or each line is a paragraph (`&paragraphs=line`), and paragraphs of `articles` and of `datasets` may be strings.
Documents are read one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from cerberank_models.language import CODE
from cerberank_models.output import installed_by
from cerberank_models.tokens import replace_surrogates
from cerberank_models.transformer import Frozen
from cerberank_training.data.format import parse_options
from cerberank_training.data.question import DataError, read_lines
from cerberank_training.data.source_files import files_of

SHORTEST_SENTENCE, SHORTEST_PARAGRAPH, SHORTEST_DOCUMENT = 20, 60, 200
"""The least numbers of characters; shorter sentences, paragraphs and documents are left out (SSP section 5)."""

Paragraph = tuple[str, ...]
Splitter = Callable[[str], list[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """Paragraphs of sentences."""

    paragraphs: tuple[Paragraph, ...]


class Options(Frozen):
    """The options after the question mark."""

    sentences: Annotated[str, Field(pattern=CODE.pattern)] | None = None
    """The language (ISO 639-1) of plain text that is to be split into sentences; None if it is split already."""
    paragraphs: Literal["blank", "line"] = "blank"
    """The end of a paragraph in plain text: a blank line, or the end of each line."""

    @model_validator(mode="after")
    def _used(self) -> Self:
        if self.paragraphs == "line" and self.sentences is None:
            raise ValueError("paragraphs=line needs sentences=LANGUAGE: without it a line is a sentence")
        return self


def read_documents(spec: str) -> Iterator[Document]:
    """The documents of `FORMAT:PATH` that are long enough. Raises DataError; an error of the spec is raised at once."""
    name, separator, path = spec.partition(":")
    if not separator or name not in READERS:
        raise DataError(f"documents are named FORMAT:PATH with FORMAT one of {', '.join(READERS)}, not {spec!r}")
    place, options = parse_options(Options, name, Path(path))
    read = READERS[name](place, options.sentences is not None)
    if options.sentences is not None:
        read = _split(read, _splitter(options.sentences), by_line=options.paragraphs == "line")
    documents = map(long_enough, read)
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


def _splitter(language: str) -> Splitter:
    """A function that splits a text into sentences. Raises DataError if the library is missing."""
    try:
        import sentencex  # noqa: PLC0415 - an extra of its own
    except ImportError as error:
        raise DataError(
            f"splitting text into sentences needs the library sentencex; {installed_by('sentences')}"
        ) from error

    def split(text: str) -> list[str]:
        plain = " ".join(replace_surrogates(text).split())  # sentencex 1.0.32 panics on some blanks that are not ASCII
        try:
            return [sentence.strip() for sentence in sentencex.segment(language, plain)]
        except BaseException as error:  # a panic is not an Exception
            if type(error).__name__ != "PanicException":
                raise
            raise DataError(f"sentencex fails on the text {plain[:80]!r}") from error

    return split


def _split(
    documents: Iterable[Sequence[Sequence[str]]], split: Splitter, *, by_line: bool
) -> Iterator[Sequence[Sequence[str]]]:
    """The documents with each paragraph, or each of its lines, split into sentences."""
    for paragraphs in documents:
        texts = (text for lines in paragraphs for text in (lines if by_line else (" ".join(lines),)))
        yield [split(text) for text in texts]


def _read_articles(path: Path, plain: bool) -> Iterator[Sequence[Sequence[str]]]:
    for number, line in read_lines(path):
        try:
            yield _paragraphs(json.loads(line)["paragraphs"], plain)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}:{number}: not an article ({error!r})") from error


def _read_text(path: Path, plain: bool) -> Iterator[Sequence[Sequence[str]]]:
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


def _read_datasets(path: Path, plain: bool) -> Iterator[Sequence[Sequence[str]]]:
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
            yield _paragraphs(row["paragraphs"], plain) if "paragraphs" in row else _text_paragraphs(row["text"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}, row {number}: neither paragraphs nor text ({error!r})") from error


def _paragraphs(value: Any, plain: bool) -> Sequence[Sequence[str]]:
    """Return `value` if it is a list of lists of strings. If texts are `plain`, a paragraph may be a string."""
    if plain and isinstance(value, list):
        value = [[each] if isinstance(each, str) else each for each in value]
    if not isinstance(value, list) or not all(isinstance(each, list) for each in value):
        raise TypeError("paragraphs are lists of sentences, and strings with ?sentences=LANGUAGE")
    if not all(isinstance(text, str) for paragraph in value for text in paragraph):
        raise TypeError("sentences are strings")
    return value


def _text_paragraphs(text: str) -> Sequence[Sequence[str]]:
    """The paragraphs of a text, which blank lines separate, each as a list of lines."""
    return [block.splitlines() for block in re.split(r"\n\s*\n", text) if block.strip()]


READERS: dict[str, Callable[[Path, bool], Iterator[Sequence[Sequence[str]]]]] = {
    "articles": _read_articles,
    "text": _read_text,
    "datasets": _read_datasets,
}
