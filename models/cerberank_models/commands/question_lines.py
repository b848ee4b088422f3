"""Parses the input of `cerberank rank`: one line of JSON per question, in the shape of a `/v1/rank` body.

A line becomes a QuestionLine; an invalid line raises ValueError with a message of one line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, ValidationError, field_validator

from cerberank_models.encoding import Candidate
from cerberank_models.tokens import replace_surrogates
from cerberank_models.transformer import Frozen


class CandidateLine(Frozen):
    """A candidate with its context and the caller's id."""

    id: str | None = None
    text: str
    previous: str = ""
    next: str = ""
    label: Annotated[float | None, Field(exclude=True)] = None
    """A label, which is ignored; training data, which has the same format, has labels."""

    def candidate(self) -> Candidate:
        """The fields that the ranker reads."""
        return Candidate(text=self.text, previous=self.previous, next=self.next)


def _kind(value: Any) -> str:
    """The tag of the branch of the union for a value, so that an error message is about this branch only."""
    return "<text>" if isinstance(value, str) else "<object>"


class QuestionLine(Frozen):
    """One question with its candidates, each a text or an object."""

    id: str | None = None
    question: str
    candidates: Annotated[
        list[
            Annotated[Annotated[str, Tag("<text>")] | Annotated[CandidateLine, Tag("<object>")], Discriminator(_kind)]
        ],
        Field(min_length=1),
    ]

    @field_validator("question")
    @classmethod
    def _not_blank(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("must not be blank")
        return text

    def parsed(self) -> list[CandidateLine]:
        """Every candidate as an object."""
        return [CandidateLine(text=item) if isinstance(item, str) else item for item in self.candidates]


def read_line(line: bytes) -> QuestionLine:
    """Parse one line. A byte-order mark is skipped, and lone surrogates become U+FFFD, as in the encoder.

    Raises ValueError with the name of the invalid field.
    """
    try:
        content = json.loads(line)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at column {error.colno}") from error
    try:
        # Serialised again, because pydantic rejects every string with a lone surrogate.
        return QuestionLine.model_validate_json(replace_surrogates(json.dumps(content, ensure_ascii=False)))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise ValueError(f"{_place(problem['loc'])}{problem['msg'].removeprefix('Value error, ')}") from error


def read_questions(path: Path) -> list[tuple[str, list[Candidate]]]:
    """The questions of a file with their candidates. Raises ValueError for an invalid line, or if there are none."""
    questions = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            question = read_line(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        questions.append((question.question, [candidate.candidate() for candidate in question.parsed()]))
    if not questions:
        raise ValueError(f"{path} holds no question")
    return questions


def _place(location: tuple[int | str, ...]) -> str:
    """The location as text, such as `candidates.3.text: `, without union tags, which are in angle brackets."""
    parts = [str(part) for part in location if not str(part).startswith("<")]
    return ".".join(parts) + ": " if parts else ""
