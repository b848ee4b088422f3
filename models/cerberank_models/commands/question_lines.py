"""Parses the input of `cerberank rank`: one line of JSON per question, in the shape of a `/v1/rank` body.

A line of training data in the generic form (docs/data.md) is such a line too; what only training reads is ignored. A
line becomes a QuestionLine; an invalid line raises ValueError with a message of one line.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from cerberank_models.encoding import Candidate
from cerberank_models.json_lines import Identifier, OptionalText, parse_json
from cerberank_models.request import QuestionText
from cerberank_models.transformer import Frozen

OfTraining = Annotated[Any, Field(exclude=True)]
"""A key of training data, which is ignored. Other keys that a line does not know are errors, as in the service."""


class CandidateLine(Frozen):
    """A candidate with its context and the caller's id."""

    id: Identifier = None
    text: str
    previous: OptionalText = ""
    next: OptionalText = ""
    label: OfTraining = None
    score: OfTraining = None
    docid: OfTraining = None

    def candidate(self) -> Candidate:
        """The fields that the ranker reads."""
        return Candidate(text=self.text, previous=self.previous, next=self.next)


def _kind(value: Any) -> str:
    """The tag of the branch of the union for a value, so that an error message is about this branch only."""
    return "<text>" if isinstance(value, str) else "<object>"


class QuestionLine(Frozen):
    """One question with its candidates, each a text or an object."""

    id: Identifier = None
    question: QuestionText
    title: OfTraining = None
    candidates: list[
        Annotated[Annotated[str, Tag("<text>")] | Annotated[CandidateLine, Tag("<object>")], Discriminator(_kind)]
    ]

    def parsed(self) -> list[CandidateLine]:
        """Every candidate as an object."""
        return [CandidateLine(text=item) if isinstance(item, str) else item for item in self.candidates]


def read_line(line: bytes) -> QuestionLine:
    """Parse one line. A byte-order mark is skipped, and lone surrogates become U+FFFD, as in the encoder.

    Raises ValueError with the name of the invalid field.
    """
    try:
        return parse_json(QuestionLine, line.removeprefix(BOM_UTF8).decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: {error.reason} at byte {error.start}") from error


def read_questions(path: Path) -> list[tuple[str, list[Candidate]]]:
    """The questions of a file with their candidates; blank lines and questions without a candidate are skipped.

    Raises ValueError for an invalid line, or if there are no questions.
    """
    questions = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            question = read_line(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        if question.candidates:
            questions.append((question.question, [candidate.candidate() for candidate in question.parsed()]))
    if not questions:
        raise ValueError(f"{path} holds no question with a candidate")
    return questions
