"""The kinds of errors that a client can get, and the native error format.

Every dialect has its own error format for the same kinds; see `dialects/`.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel, ValidationError

from cerberank_models.request import describe_problems


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn panics of Rust libraries, which derive from BaseException but not from Exception, into RuntimeError.

    Cancellations and the exceptions that end the process pass unchanged. Can also be used as a decorator.
    """
    try:
        yield
    except (Exception, CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise RuntimeError(f"a library failed with {type(error).__name__}") from error


class Kind(Enum):
    """The kind of an error; the value is its HTTP status."""

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
        """The kind's name in error bodies and metrics."""
        return self.name.lower()


QUOTING = frozenset({Kind.MALFORMED, Kind.NOT_FOUND, Kind.INVALID})
"""Kinds whose messages may quote the request, such as the names of unknown models or fields; they are not logged."""


REFUSALS = ("queue", "deadline", "memory", "connections", "loading", "stopping", "failed")
"""Reasons for a 503 in the log and the metrics:

- queue: the predicted time in the queue is too long;
- deadline: the question's deadline cannot be met;
- memory: too many tokens are queued, too many large bodies are held, or the machine lacks memory, threads or
  descriptors;
- connections: too many requests are in progress;
- loading: no model is ready yet;
- stopping: the process is shutting down;
- failed: a model has failed.
"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Details of a 503, for the log and the metrics."""

    reason: str
    """One of `REFUSALS`."""
    seconds: float | None = None
    """Predicted seconds in the queue."""
    candidates: int | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the log line."""
        milliseconds = None if self.seconds is None else round(1000.0 * self.seconds, 1)
        fields = {"refusal": self.reason, "predicted_queue_ms": milliseconds, "candidates": self.candidates}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(eq=False)
class ServiceError(Exception):
    """An error that is sent to the client; the message says what to change.

    Create a new instance for every raise (`dataclasses.replace`), because an exception collects a traceback each time.
    Do not raise it from a local variable: the frame and the traceback then reference each other, and the request's
    body stays in memory until the garbage collector finds the cycle.
    """

    kind: Kind
    message: str
    retry_after: int | None = None
    """The value of `Retry-After`: whole seconds, because clients do not parse fractions."""
    reason: str = ""
    """The text to log in place of a message that may quote the request."""
    refusal: Refusal | None = None
    """Details of the refusal, if a question was refused with 503."""
    tokens: int = 0
    """Tokens that were read before the question was refused for its content; they count in quotas."""

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After` where waiting helps; `WWW-Authenticate` for a missing key."""
        challenge = {"WWW-Authenticate": "Bearer"} if self.kind is Kind.UNAUTHORIZED else {}
        return challenge if self.retry_after is None else {"Retry-After": str(max(1, self.retry_after))}

    @property
    def logged(self) -> str:
        """The text for the log: the reason, or the message if errors of this kind never quote a request."""
        return self.reason or ("" if self.kind in QUOTING else self.message)


class ErrorFields(BaseModel):
    """The error, and the request id under which it is logged."""

    kind: str
    message: str
    request_id: str


class ErrorBody(BaseModel):
    """The error body of `/v1/rank` and of every path without a dialect."""

    error: ErrorFields


def native_body(error: ServiceError, request_id: str) -> dict[str, Any]:
    """The fields of an ErrorBody as JSON-ready values."""
    return {"error": {"kind": error.kind.label, "message": error.message, "request_id": request_id}}


def from_validation(error: ValidationError) -> ServiceError:
    """A ServiceError (422) that names the first invalid fields."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return ServiceError(Kind.INVALID, describe_problems(problems), reason=reason_of(problems))


def reason_of(problems: Sequence[Mapping[str, Any]]) -> str:
    """The types of the first three of pydantic's problems, for the log.

    >>> reason_of([{"type": "missing", "loc": ("question",), "msg": "Field required"}])
    'missing'
    """
    return ", ".join(dict.fromkeys(str(problem["type"]) for problem in problems[:3]))
