"""A question with labelled candidates, which every reader yields, and the subsets that papers report."""

from __future__ import annotations

import gzip
import random
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from cerberank_models.encoding import Candidate
from cerberank_models.json_lines import load_json, parse_json
from cerberank_models.transformer import Frozen

Subset = Literal["raw", "clean", "strict"]
LineT = TypeVar("LineT", bound=Frozen)


class DataError(ValueError):
    """Data cannot be read; the message names the file and, for a row, the line."""


@dataclass(frozen=True, slots=True)
class LabelledCandidate:
    """A candidate with its label: 0 is not relevant, 1 or more is relevant. Only nDCG uses the grades above 0."""

    candidate: Candidate
    label: int
    score: float | None = None
    """A score from a judge or another model, on any scale; `cerberank data score` reads it."""
    id: str = ""
    """The document's id; empty if the data set has no ids."""
    copy: bool = False
    """True if the candidate has no judgement, and the text of a relevant document. Training leaves it out."""

    @property
    def relevant(self) -> bool:
        """True if the candidate answers the question, which is the target of pointwise losses."""
        return self.label > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question with its candidates in the order of the file.

    Raises ValueError for bad labels, and for no candidates unless relevant documents were missed.
    """

    id: str
    text: str
    candidates: tuple[LabelledCandidate, ...]
    title: str = ""
    """The article's title; empty if the data set has no articles."""
    paragraph: int | None = None
    """The paragraph of the article that the candidates come from."""
    answers: tuple[str, ...] = ()
    """The short answers; empty if the data set has none."""
    missed: tuple[int, ...] = ()
    """The grades of relevant documents that are not candidates, because a run has not found them."""

    def __post_init__(self) -> None:
        if not self.candidates and not self.missed:
            raise ValueError("a question needs a candidate")
        if min(self.labels, default=0) < 0 or min(self.missed, default=1) < 1:
            raise ValueError("labels are 0 or more, the grades of missed documents 1 or more")

    @property
    def labels(self) -> tuple[int, ...]:
        """The candidates' labels."""
        return tuple(candidate.label for candidate in self.candidates)

    @property
    def answerable(self) -> bool:
        """True if metrics are defined, because there is a relevant document, which need not be a candidate."""
        return any(self.labels) or bool(self.missed)

    def holds_answer(self, text: str) -> bool:
        """True if a text contains a short answer of more than two letters; it may then answer the question."""
        lowered = text.lower()
        return any(answer.lower() in lowered for answer in self.answers if len(answer) > 2)


def subset(questions: Iterable[Question], name: Subset) -> list[Question]:
    """`raw`: all; `clean`: at least one positive; `strict`: at least one positive and one negative."""
    return [question for question in questions if within(question.labels, question.missed, name)]


def within(labels: Sequence[int], missed: Sequence[int], name: Subset) -> bool:
    """True if a question with these labels and missed grades belongs to the subset."""
    answerable = any(labels) or bool(missed)
    return name == "raw" or (answerable and (name == "clean" or not all(labels)))


def sampled(questions: Iterable[Question], *, size: int | None, seed: int, name: Subset) -> list[Question]:
    """All questions if `size` is None, or else at most `size` random ones of the subset, determined by the seed."""
    if size is None:
        return list(questions)
    usable = subset(questions, name)
    return random.Random(seed).sample(usable, min(size, len(usable)))


def read_lines(path: Path, *, encoding: str = "utf-8", blank: bool = False) -> Iterator[tuple[int, str]]:
    """The numbered lines of a file, without line ends and byte-order mark; a file .gz is decompressed.

    Lines without a visible character are skipped, unless `blank` asks for them; they count in the numbers.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                content = line.removeprefix(BOM_UTF8) if number == 1 else line
                decoded = content.decode(encoding).rstrip("\r\n")
                if blank or decoded.strip():
                    yield number, decoded
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: is not {encoding.upper()}: {error.reason} at byte {error.start}") from error
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: {reason(error)}") from error


def read_json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """The numbered values of a file with a value of JSON on each line. Raises DataError with file and line."""
    for number, line in read_lines(path):
        try:
            yield number, load_json(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: {error}") from error


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Put the name of the data, or of a row, before the messages of errors of the data."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{place}: {error}") from error


def reason(error: Exception) -> str:
    """The text of an error about a file or folder, without its name."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def parse_line(model: type[LineT], path: Path, number: int, line: str) -> LineT:
    """Parse a line of JSON as `model`. Raises DataError with file, line and field."""
    try:
        return parse_json(model, line)
    except ValueError as error:
        raise DataError(f"{path}:{number}: {error}") from error


def with_neighbours(sentences: list[str]) -> list[Candidate]:
    """The sentences of one paragraph as candidates, each with the sentence before and after it as context."""
    padded = ["", *sentences, ""]
    return [
        Candidate(text=text, previous=padded[index], next=padded[index + 2]) for index, text in enumerate(sentences)
    ]
