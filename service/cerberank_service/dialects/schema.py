"""The native wire: `POST /v1/rank`. All validation of its body ends here."""

from __future__ import annotations

import re
from itertools import islice
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from cerberank_service.errors import Kind, ServiceError, from_validation

Ratio = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]

EXAMPLE: JsonValue = {
    "question": "How tall is the Eiffel Tower?",
    "candidates": [
        "The Eiffel Tower was built for the World's Fair of 1889.",
        "With its antennas the Eiffel Tower is 330 metres tall.",
        {"id": "s3", "text": "It was painted again last year.", "previous": "The tower is made of iron."},
    ],
    "top_k": 2,
}


CEILING = 100_000
"""Items beyond which a list is not even read; the limit proper is `Settings.max_candidates`."""

Items = Field(min_length=1, max_length=CEILING, fail_fast=True)
"""Of every list of candidates. Without fail_fast a body of 16 MB of wrong items costs minutes and gigabytes."""

MOST_FIELDS = 64
FIELDS_PER_CANDIDATE = 20
"""Some dialects' documents may have fields that nobody reads."""
NAME_END = re.compile(rb'"\s*:')

STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)?', re.DOTALL)
"""One that nobody ends reaches to the end: the search never goes back, whatever it is given."""

LONE_SURROGATE = re.compile(
    rb"\\(?:(\\|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""An escaped half of a UTF-16 pair; escaped backslashes and whole pairs are matched first, as group 1.

The backslash stands alone in front: the search then leaps from one to the next. Looking at every byte of 16 MB that are
no JSON took 0.4 s, in which no other thread ran.
"""


class Wire(BaseModel):
    """Unknown fields are refused: a misspelt option must not be silently without effect. So is "3" for 3."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        """Refuse a million unknown fields as one error rather than as a million."""
        if isinstance(value, dict) and len(value) > MOST_FIELDS:
            raise ValueError("has far too many fields")
        return value


def check_fields(body: bytes, most_candidates: int) -> None:
    """Raises ServiceError (422) for far more fields or items than so many candidates have.

    A body of 16 MB can hold millions of them, and to read those would hold up every other request for up to seconds.
    """
    most = FIELDS_PER_CANDIDATE * most_candidates + MOST_FIELDS
    if body.count(b":") > most and next(islice(NAME_END.finditer(body), most, None), None) is not None:
        raise ServiceError(Kind.INVALID, "body: has far too many fields")
    if body.count(b",") > most and _has_more_commas(body, most):
        raise ServiceError(Kind.INVALID, "body: has far too many items")


def _has_more_commas(body: bytes, most: int) -> bool:
    """Whether more than `most` stand outside of strings. A loop in Python, for other threads run meanwhile."""
    count = end = 0
    for string in STRING.finditer(body):
        count += body.count(b",", end, string.start())
        end = string.end()
        if count > most:
            return True
    return count + body.count(b",", end) > most


WireT = TypeVar("WireT", bound=Wire)


def read_json(model: type[WireT], body: bytes) -> WireT:
    """Validate a body; raises ServiceError (400 or 422).

    A lone surrogate, which some clients cut out of an emoji, becomes U+FFFD as it does in the encoder: it must
    not fail the request's other candidates.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.errors(include_input=False)[0]["type"] != "json_invalid" or (repaired := repair(body)) == body:
            raise from_validation(error) from error
    return read_json(model, repaired)


def repair(body: bytes) -> bytes:
    """The body with U+FFFD in the place of lone surrogates."""
    if b"\\" not in body:  # one byte is looked for much faster than an expression
        return body
    return LONE_SURROGATE.sub(lambda match: b"\\" + match[1] if match[1] else rb"\ufffd", body)


def spare(request: WireT, *names: str) -> WireT:
    """The request with these texts and lists empty: what its answer does not repeat is neither kept nor passed on."""
    return request.model_copy(update={name: type(getattr(request, name))() for name in names})


class CandidateObject(Wire):
    """A candidate with an id of the caller's and its neighbouring sentences."""

    id: str | None = None
    text: str
    previous: str = ""
    next: str = ""


def candidate_kind(value: Any) -> str:
    """The union's branch, so that errors speak of that one alone."""
    return "<text>" if isinstance(value, str) else "<object>"


def _ratio_kind(value: Any) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<number>"


CandidateIn = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[CandidateObject, Tag("<object>")], Discriminator(candidate_kind)
]
DropRatioIn = Annotated[
    Annotated[Ratio, Tag("<number>")] | Annotated[list[Ratio], Tag("<list>")], Discriminator(_ratio_kind)
]


def not_blank(text: str) -> str:
    """Refuse a question without a visible character."""
    if not text.strip():
        raise ValueError("must not be blank")
    return text


class RankRequest(Wire):
    """A question and its candidates."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    question: Annotated[str, Field(description="The question; it must not be blank.")]
    candidates: Annotated[
        list[CandidateIn],
        Items,
        Field(description="Texts, or objects with id, text, previous and next."),
    ]
    model: Annotated[str | None, Field(description="Model name; the served one when left out.")] = None
    top_k: Annotated[int | None, Field(ge=1, description="Results to return; all when left out.")] = None
    drop_ratio: Annotated[
        DropRatioIn | None,
        Field(description="Share of the candidates that each exit drops: one number, or one per exit."),
    ] = None
    deadline_ms: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="Answer with what is known when this has passed."),
    ] = None
    latency_target_ms: Annotated[
        float | None,
        Field(
            gt=0, allow_inf_nan=False, description="Drop as little as the model's tuned schedules allow to be in time."
        ),
    ] = None
    priority: Annotated[int, Field(ge=0, le=999, description="0 is the highest; a hundred more halve the share.")] = 0
    return_text: Annotated[bool, Field(description="Repeat each candidate's text in the answer.")] = False
    return_heads: Annotated[bool, Field(description="Give each head's probability.")] = False

    _question = field_validator("question")(not_blank)


class Result(Wire):
    """One candidate's place."""

    index: Annotated[int, Field(description="The candidate's place in the request.")]
    id: Annotated[str | None, Field(description="Its id, if it came with one.")] = None
    score: Annotated[float | None, Field(description="P(correct) at the stage reached, 0..1; null before any.")]
    stage: Annotated[int, Field(description="The last stage that scored it, counted from 0; -1 for none.")]
    truncated: Annotated[bool, Field(description="Whether it, or the question, was cut to the token limit.")]
    heads: Annotated[list[float] | None, Field(description="Each head's probability, if asked for.")] = None
    text: str | None = None


class Usage(Wire):
    """What the request cost."""

    candidates: int
    tokens: Annotated[int, Field(description="Tokens of all distinct pairs.")]


class TimingMs(Wire):
    """Milliseconds by phase."""

    encode: float
    queue: float
    compute: float
    total: float


class RankResponse(Wire):
    """The candidates, best first; absent optional fields are left out."""

    id: Annotated[str, Field(description="The request id, also in `X-Request-Id`.")]
    model: str
    version: str
    drop_schedule: list[float]
    expected_loss: Annotated[
        dict[str, float], Field(description="Points of each metric that the schedule costs, where the model knows it.")
    ]
    complete: Annotated[bool, Field(description="False when the deadline passed before the last stage.")]
    results: list[Result]
    usage: Usage
    timing_ms: TimingMs
    warnings: list[str]
