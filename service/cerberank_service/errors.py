"""The few kinds of error that a client can get, and the one body that carries them.

Every dialect gives the same kinds in a format of its own; see `dialects/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel, ValidationError


class Kind(Enum):
    """What went wrong; the value is the HTTP status."""

    MALFORMED = 400
    UNAUTHORIZED = 401
    NOT_FOUND = 404
    METHOD_NOT_ALLOWED = 405
    TIMEOUT = 408
    CONFLICT = 409
    TOO_LARGE = 413
    INVALID = 422
    EXHAUSTED = 429
    INTERNAL = 500
    UNAVAILABLE = 503

    @property
    def label(self) -> str:
        """The name in bodies and metrics."""
        return self.name.lower()


@dataclass(eq=False)
class ServiceError(Exception):
    """An error that is answered to the client; the message says what to change.

    Make a fresh one for every raise: an exception collects the traceback of each.
    """

    kind: Kind
    message: str
    retry_after: int | None = None
    """Whole seconds; clients misread fractions."""

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After` where waiting helps, and how to say who one is."""
        challenge = {"WWW-Authenticate": "Bearer"} if self.kind is Kind.UNAUTHORIZED else {}
        return challenge if self.retry_after is None else {"Retry-After": str(max(1, self.retry_after))}


class ErrorFields(BaseModel):
    """What went wrong, and under which id the log speaks of it."""

    kind: str
    message: str
    request_id: str


class ErrorBody(BaseModel):
    """The error body of `/v1/rank` and of every path that is no dialect's."""

    error: ErrorFields


def native_body(error: ServiceError, request_id: str) -> dict[str, Any]:
    """ErrorBody, ready for JSON."""
    return {"error": {"kind": error.kind.label, "message": error.message, "request_id": request_id}}


MESSAGES = {
    "missing": "is required",
    "extra_forbidden": "is no field of this request",
    "too_long": "holds far more items than this service takes; send fewer",
    "model_type": "Input should be an object",
    "dict_type": "Input should be an object",
    "list_type": "Input should be a valid array",
}
"""Said instead of pydantic's words, which do not tell a client what to change."""


def from_validation(error: ValidationError) -> ServiceError:
    """422 naming the first fields that do not fit."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return ServiceError(Kind.INVALID, describe_problems(problems))


def describe_problems(problems: Sequence[Mapping[str, Any]]) -> str:
    """The first of pydantic's problems in words."""
    shown = "; ".join(_problem(problem) for problem in problems[:3])
    return shown + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")


def _problem(problem: Mapping[str, Any]) -> str:
    message = MESSAGES.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    return f"{_place(problem['loc'])[:100]}: {message}"


def _place(location: Iterable[int | str]) -> str:
    """`candidates[3].text`; union tags, in angle brackets, are left out."""
    place = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        elif not part.startswith("<"):
            place += f".{part}" if place else part
    return place or "body"
