"""The native wire format for several questions in one call, `POST /v1/rank/batch`.

Each question is a body of `/v1/rank`, and is read and answered on its own. A refused question has an error in its place
of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, JsonValue, SkipValidation
from pydantic_core import to_json

from cerberank_models.request import Wire
from cerberank_service.dialects.native_schema import RankRequest, RankResponse
from cerberank_service.dialects.wire import Document, check_structure, read_json, validate
from cerberank_service.errors import ErrorFields, Kind, ServiceError, native_body

MOST_QUESTIONS = 64
FIELDS_AS_CANDIDATES = 8
"""Number of candidates that have as much JSON structure together as the other fields of one question."""
EXAMPLE: JsonValue = {
    "questions": [
        {"question": "How tall is the Eiffel Tower?", "candidates": ["It is 330 metres tall.", "It is in Paris."]},
        {"question": "Where is the Eiffel Tower?", "candidates": ["It is 330 metres tall.", "It is in Paris."]},
    ]
}


class BatchRequest(Wire):
    """Several questions, each with its own candidates and options."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    questions: Annotated[
        list[SkipValidation[RankRequest]],
        Field(min_length=1, max_length=MOST_QUESTIONS, fail_fast=True, description="Bodies of `/v1/rank`."),
    ]


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
class BatchQuestion:
    """One question of a call, not validated yet."""

    document: Document
    most_rows: int
    """Limit of the windows of all its candidates together."""


def read_batch(body: bytes, most_candidates: int) -> list[BatchQuestion]:
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
    questions = [Document(content) for content in contents]
    lists = [question.fields.get("candidates", question.fields.get("documents")) for question in questions]
    counts = [len(each) if isinstance(each, list) else 0 for each in lists]
    if (count := sum(counts)) > most_candidates:
        raise ServiceError(
            Kind.INVALID,
            f"questions: {count} candidates in all are more than the limit of {most_candidates}; send fewer questions "
            "in one call, or raise CERBERANK_MAX_CANDIDATES",
        )
    windowed = sum(question.fields.get("windows") != "off" for question in questions)
    share = (most_candidates - count) // max(1, windowed)
    return [BatchQuestion(question, max(1, own + share)) for question, own in zip(questions, counts, strict=True)]


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
