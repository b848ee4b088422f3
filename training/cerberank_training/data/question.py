"""A question with labelled candidates, as every reader yields it, and the subsets that papers report."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from cerberank_models.config import Frozen
from cerberank_models.encoding import Candidate

Subset = Literal["raw", "clean", "strict"]
LineT = TypeVar("LineT", bound=Frozen)


class DataError(ValueError):
    """A row cannot be read; the message names file and line."""


@dataclass(frozen=True, slots=True)
class LabelledCandidate:
    """A candidate and whether it answers the question (1) or not (0)."""

    candidate: Candidate
    label: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question with its candidates in the order of the file. Raises ValueError without any or for bad labels."""

    id: str
    text: str
    candidates: tuple[LabelledCandidate, ...]
    title: str = ""
    """The article's title, where the data set has articles."""
    paragraph: int | None = None
    """The paragraph of the article that the candidates come from."""
    answers: tuple[str, ...] = ()
    """Short answers, where the data set has them."""

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ValueError("a question needs a candidate")
        if not set(self.labels) <= {0, 1}:
            raise ValueError("labels are 0 or 1")

    @property
    def labels(self) -> tuple[int, ...]:
        """The candidates' labels."""
        return tuple(candidate.label for candidate in self.candidates)


def subset(questions: Iterable[Question], name: Subset) -> list[Question]:
    """`raw`: all; `clean`: at least one positive; `strict`: at least one positive and one negative."""
    if name == "raw":
        return list(questions)
    clean = [question for question in questions if any(question.labels)]
    return clean if name == "clean" else [question for question in clean if not all(question.labels)]


def sampled(questions: Iterable[Question], *, size: int | None, seed: int, name: Subset) -> list[Question]:
    """All questions if `size` is None, else at most `size` of the subset, the same for the same data and seed."""
    if size is None:
        return list(questions)
    usable = subset(questions, name)
    return random.Random(seed).sample(usable, min(size, len(usable)))


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file, decompressed if its name ends in .gz."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                yield number, line.rstrip("\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}") from error


def parse_line(model: type[LineT], path: Path, number: int, line: str) -> LineT:
    """Parse a line of JSON as `model`; raises DataError with file, line and field."""
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "line"
        raise DataError(f"{path}:{number}: {place}: {first['msg']}") from error


def with_neighbours(sentences: list[str]) -> list[Candidate]:
    """The sentences of one paragraph as candidates, each with the sentence before and after it as context."""
    padded = ["", *sentences, ""]
    return [
        Candidate(text=text, previous=padded[index], next=padded[index + 2]) for index, text in enumerate(sentences)
    ]
