"""Parsing and validation shared by all dialects: JSON is parsed once, within limits, and validated.

The native dialect refuses unknown fields. Clients of other services send fields that only their service knows, so
`VendorWire` accepts and ignores them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from cerberank_models.request import MOST_FIELDS, Wire
from cerberank_service.errors import Kind, ServiceError, from_validation

CEILING = 100_000
"""Length beyond which a list is refused before validation; the limit of candidates is `Settings.max_candidates`."""

Items = Field(min_length=1, max_length=CEILING, fail_fast=True)
"""Length limits of every list of candidates. Without fail_fast, each invalid item of a body would add an error."""

STRUCTURE_PER_CANDIDATE = {b",": 10, b":": 4, b"[": 2, b"{": 2}
"""Limits of JSON's structural characters outside of strings, for each candidate that the service allows in a body. They
leave room for additional fields: with the default limit of 10,000 candidates, 1,000 documents may have forty fields
each."""

STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)?', re.DOTALL)
"""A JSON string; an unterminated one extends to the end. Possessive quantifiers keep the search linear."""

LONE_SURROGATE = re.compile(
    rb"\\(?:(\\|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""An escaped half of a surrogate pair; escaped backslashes and complete pairs are matched first, as group 1.

The pattern begins with a literal backslash, so that the search can skip from one backslash to the next. Otherwise
searching a body of 16 MB that is not JSON held the GIL for 0.4 s.
"""


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class VendorWire(Wire):
    """A request in another service's dialect. Unknown fields have no effect; `Read.ignored` lists them."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


def _truth(value: bool | str) -> bool:
    return value if isinstance(value, bool) else value.lower() == "true"


def _all_of_none(count: int | None) -> int | None:
    return count or None


Flag = Annotated[bool | Annotated[str, Field(pattern="^([Tt]rue|[Ff]alse)$")], AfterValidator(_truth)]
"""A boolean of another service's dialect, which some clients send as a text."""

Top = Annotated[
    int | None, Field(ge=0, description="Number of results; 0 and null give all."), AfterValidator(_all_of_none)
]
"""Number of results that a request in another service's dialect asks for; None for all."""

MostTokens = Annotated[
    int | None,
    Field(ge=0, description="Tokens of a document that are read; 0 and null read as many as fit."),
    AfterValidator(_all_of_none),
]
"""Number of a document's tokens to read, in a request in another service's dialect; None for all."""


def check_structure(body: bytes, most_candidates: int) -> None:
    """Raises ServiceError (422) for far more fields, items or nesting than `most_candidates` candidates need.

    Parsing four megabytes of small items would hold the GIL for up to 0.8 s and block all other requests.
    """
    most = {mark: each * most_candidates + MOST_FIELDS for mark, each in STRUCTURE_PER_CANDIDATE.items()}
    if any(body.count(mark) > limit for mark, limit in most.items()) and _has_more(body, most):
        raise ServiceError(Kind.INVALID, "body: has far too many fields or items")


def _has_more(body: bytes, most: Mapping[bytes, int]) -> bool:
    """True if the body has more of some mark outside of strings than `most` allows.

    Every string but the first follows a mark, so that a body with more strings than allowed marks has too many marks.
    The loop is in Python, so that other threads can run in between.
    """
    strings = sum(most.values()) + 1
    outside, end = [], 0
    for number, string in enumerate(STRING.finditer(body), start=1):
        if number > strings:
            return True
        outside.append(body[end : string.start()])
        end = string.end()
    structure = b"".join([*outside, body[end:]])
    return any(structure.count(mark) > limit for mark, limit in most.items())


WireT = TypeVar("WireT", bound=Wire)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed body: its JSON as Python values, and the bytes after the JSON."""

    content: Any
    binary: bytes = b""
    path: Mapping[str, str] = field(default_factory=dict)
    """The parameters of the request's path."""
    most_candidates: int = CEILING
    """Limit of the candidates, for a dialect whose lists are not fields of the JSON."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of a JSON object; empty for other JSON values."""
        return self.content if isinstance(self.content, dict) else {}


def read_json(body: bytes, json_bytes: int | None = None) -> Document:
    """Parse the JSON of a body, which is its first `json_bytes` or all of it. Raises ServiceError (400).

    A lone surrogate, which some clients produce by cutting an emoji, is replaced by U+FFFD, as in the encoder, so that
    the request does not fail. A byte-order mark, which PowerShell and some editors write, is left out.
    """
    text = body[:json_bytes].removeprefix(BYTE_ORDER_MARK)
    binary = b"" if json_bytes is None else body[json_bytes:]
    try:
        return Document(from_json(text, cache_strings="keys"), binary)
    except ValueError as error:
        repaired = replace_lone_surrogates(text)
        if repaired == text:
            raise ServiceError(Kind.MALFORMED, _not_json(text, error)) from error
    return Document(read_json(repaired).content, binary)


def _not_json(text: bytes, error: ValueError) -> str:
    """The message about a body that is not JSON: what it is instead, or the place of the fault."""
    begin = text.lstrip()[:20]
    if begin.startswith((b"{", b"[")):
        return f"the body is not valid UTF-8 JSON: {error}"
    found = f"begins with {begin.decode(errors='replace')!r}" if begin else "is empty"
    return f"the body {found}; send an object of JSON, such as {{...}}, and not a form"


def check_count(name: str, count: int, most: int) -> None:
    """Raises ServiceError (422) for more than `most` candidates."""
    if count > most:
        raise ServiceError(
            Kind.INVALID,
            f"{name}: {count} are more than the limit of {most}; send fewer, or raise CERBERANK_MAX_CANDIDATES",
        )


def validate(model: type[WireT], document: Document) -> WireT:
    """The request that a document holds. Raises ServiceError (422)."""
    if not isinstance(document.content, dict):
        needed = " and ".join(name for name, field in model.model_fields.items() if field.is_required())
        raise ServiceError(Kind.INVALID, "body: must be an object" + (f" with {needed}" if needed else ""))
    try:
        return model.model_validate(document.content)
    except ValidationError as error:
        raise from_validation(error) from error


def replace_lone_surrogates(text: bytes) -> bytes:
    """Replace escaped lone surrogates in JSON by U+FFFD."""
    if b"\\" not in text:  # searching for one byte is much faster than a regular expression
        return text
    return LONE_SURROGATE.sub(lambda match: b"\\" + match[1] if match[1] else rb"\ufffd", text)
