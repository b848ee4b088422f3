"""What the wires of all dialects share: JSON read once, within bounds, and validated strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from cerberank_service.errors import Kind, ServiceError, from_validation

CEILING = 100_000
"""Items beyond which a list is not even read; the limit proper is `Settings.max_candidates`."""

Items = Field(min_length=1, max_length=CEILING, fail_fast=True)
"""Bounds of every list of candidates. Without fail_fast a body of 16 MB of wrong items costs minutes and gigabytes."""

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


@dataclass(frozen=True, slots=True)
class Document:
    """A body that was read once: its JSON as Python values, and the bytes behind the JSON."""

    content: Any
    binary: bytes = b""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of a JSON object; none where the JSON is something else."""
        return self.content if isinstance(self.content, dict) else {}


def read_json(body: bytes, json_bytes: int | None = None) -> Document:
    """Read the JSON of a body, the first `json_bytes` of it or all. Raises ServiceError (400).

    A lone surrogate, which some clients cut out of an emoji, becomes U+FFFD as it does in the encoder: it must
    not fail the request's other candidates.
    """
    text = body[:json_bytes]
    binary = b"" if json_bytes is None else body[json_bytes:]
    try:
        return Document(from_json(text, cache_strings="keys"), binary)
    except ValueError as error:
        repaired = replace_lone_surrogates(text)
        if repaired == text:
            raise ServiceError(Kind.MALFORMED, f"the body is not valid UTF-8 JSON: {error}") from error
    return Document(read_json(repaired).content, binary)


def validate(model: type[WireT], document: Document) -> WireT:
    """The request that a document holds. Raises ServiceError (422)."""
    try:
        return model.model_validate(document.content)
    except ValidationError as error:
        raise from_validation(error) from error


def replace_lone_surrogates(text: bytes) -> bytes:
    """JSON with U+FFFD in the place of escaped lone surrogates."""
    if b"\\" not in text:  # one byte is looked for much faster than an expression
        return text
    return LONE_SURROGATE.sub(lambda match: b"\\" + match[1] if match[1] else rb"\ufffd", text)


def spare(request: WireT, *names: str) -> WireT:
    """The request with these texts and lists empty: what its answer does not repeat is neither kept nor passed on."""
    return request.model_copy(update={name: type(getattr(request, name))() for name in names})


def candidate_kind(value: Any) -> str:
    """The union's branch, so that errors speak of that one alone."""
    return "<text>" if isinstance(value, str) else "<object>"


def not_blank(text: str) -> str:
    """Refuse a question without a visible character."""
    if not text.strip():
        raise ValueError("must not be blank")
    return text
