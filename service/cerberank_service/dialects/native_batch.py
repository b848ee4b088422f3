"""The native wire format for several questions in one call, `POST /v1/rank/batch`.

Each question is a body of `/v1/rank`, completed by the fields beside `questions`, and is read and answered on its own.
A refused question has an error in its place of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, JsonValue, SkipValidation
from pydantic_core import to_json

from cerberank_models.request import (
    CANDIDATES,
    QUESTION,
    CandidateIn,
    QuestionText,
    RankOptions,
    Wire,
    characters_of,
    with_shared,
)
from cerberank_service.dialects.native_schema import RankResponse
from cerberank_service.dialects.wire import CEILING, Document, check_structure, read_json, validate
from cerberank_service.errors import ErrorFields, Kind, ServiceError, native_body

MOST_QUESTIONS = 64
FIELDS_AS_CANDIDATES = 8
"""Number of candidates that have as much JSON structure together as the other fields of one question."""
TOGETHER = 32 * 1024
"""The most characters of the candidates of several questions that are in progress together: about as many as a step of
the model computes in half a second, so that the wait of other callers' questions hardly grows."""
EXAMPLE: JsonValue = {
    "questions": [
        "How tall is the Eiffel Tower?",
        {"question": "Where is the Eiffel Tower?", "top_k": 1},
    ],
    "candidates": ["It is 330 metres tall.", "It is in Paris."],
}


class OwnQuestion(Wire):
    """A question, and candidates if it has its own."""

    question: Annotated[QuestionText, QUESTION]
    candidates: Annotated[list[CandidateIn] | None, CANDIDATES] = None


class BatchQuestion(RankOptions, OwnQuestion):
    """A question with the fields in which it differs from those beside `questions`."""


class Questions(Wire):
    """Several questions, and candidates for those that have none of their own."""

    questions: Annotated[
        list[SkipValidation[str | BatchQuestion]],
        Field(
            min_length=1,
            max_length=MOST_QUESTIONS,
            fail_fast=True,
            description="Texts, or bodies of `/v1/rank`. What stands beside `questions` is for those that lack it.",
        ),
    ]
    candidates: Annotated[list[CandidateIn] | None, Field(max_length=CEILING, fail_fast=True), CANDIDATES] = None


class BatchRequest(RankOptions, Questions):
    """Several questions, with the candidates and options that they share."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})


class Answered(Wire):
    """A question's answer."""

    status: Annotated[int, Field(description="200")]
    answer: RankResponse


class Refused(Wire):
    """A question's error."""

    status: Annotated[int, Field(description="The HTTP status that it would have on `/v1/rank`.")]
    error: ErrorFields
    retry_after: Annotated[int | None, Field(description="Whole seconds, where waiting helps.")] = None


class BatchResponse(Wire):
    """An entry for each question, in the order of the request."""

    id: Annotated[str, Field(description="The request id; that of a question is followed by its place.")]
    answers: list[Answered | Refused]


@dataclass(frozen=True, slots=True)
class QuestionOfBatch:
    """One question of a call, not validated yet."""

    document: Document
    characters: int
    """The characters of its candidates, or more than TOGETHER if it runs alone."""
    most_rows: int
    """Limit of the windows of all its candidates together."""


def read_batch(body: bytes, most_candidates: int) -> list[QuestionOfBatch]:
    """The questions of a body. Raises ServiceError (400, 422).

    All questions together may have as many candidates, and as many windows, as one call of `/v1/rank`.
    """
    check_structure(body, most_candidates + FIELDS_AS_CANDIDATES * MOST_QUESTIONS)
    document = read_json(body)
    listed = document.fields.get("questions")
    if isinstance(listed, list) and len(listed) > MOST_QUESTIONS:
        raise ServiceError(
            Kind.INVALID,
            f"questions: {len(listed)} are more than the limit of {MOST_QUESTIONS}; send several requests",
        )
    contents: list[Any] = list(validate(BatchRequest, document).questions)
    shared = {name: value for name, value in document.fields.items() if name != "questions"}
    questions = [Document(with_shared(content, shared)) for content in contents]
    lists = [question.fields.get("candidates", question.fields.get("documents")) for question in questions]
    counts = [len(each) if isinstance(each, list) else 0 for each in lists]
    if (count := sum(counts)) > most_candidates:
        raise ServiceError(
            Kind.INVALID,
            f"questions: {count} candidates in all, shared ones counted for each question, are more than the limit of "
            f"{most_candidates}; send fewer questions in one call, or raise CERBERANK_MAX_CANDIDATES",
        )
    windowed = sum(question.fields.get("windows") != "off" for question in questions)
    share = (most_candidates - count) // max(1, windowed)
    return [
        QuestionOfBatch(question, _characters(question, listed), max(1, count + share))
        for question, listed, count in zip(questions, lists, counts, strict=True)
    ]


def _characters(question: Document, listed: Any) -> int:
    alone = question.fields.get("deadline_ms") is not None
    return TOGETHER + 1 if alone else characters_of(listed if isinstance(listed, list) else ())


def render_answer(content: bytes) -> bytes:
    """The entry of an answered question; `content` is the answer as JSON."""
    return b'{"status":200,"answer":' + content + b"}"


def render_error(error: ServiceError, request_id: str) -> bytes:
    """The entry of a question that was refused."""
    entry = {"status": error.kind.value, **native_body(error, request_id)}
    return to_json(entry if error.retry_after is None else entry | {"retry_after": error.retry_after})


def render_batch(request_id: str, entries: Sequence[bytes]) -> bytes:
    """The body of the response, in the shape of BatchResponse."""
    return b'{"id":' + to_json(request_id) + b',"answers":[' + b",".join(entries) + b"]}"
