"""The description of a dialect: its paths, its parser and renderer, and its error format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.dialects.wire import Document
from cerberank_service.errors import ServiceError, panics_as_errors

ErrorFormat = Callable[[ServiceError, str], tuple[int, Any]]
"""Status and JSON-ready body of an error, given the request id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """One wire format. `parse` and `render` run in worker threads."""

    paths: tuple[str, ...]
    """Its paths; some are shared with other dialects, see `select_dialect`."""
    summary: str
    tag: str
    request: type[BaseModel]
    response: Any
    """The answer's type, for OpenAPI."""
    error: type[BaseModel]
    """The error body of `format_error`, for OpenAPI."""
    parse: Callable[[Document], tuple[RankCall, Any]]
    """Returns the call and the options for `render`. Raises ServiceError (400 or 422)."""
    render: Callable[[RankAnswer, Any], Any]
    """Returns JSON-ready values for an answer and the options from `parse`."""
    format_error: ErrorFormat
    matches: Callable[[Mapping[str, Any]], bool] | None = None
    """On a shared path: whether a body with these fields is in this dialect; None for the path's first dialect."""
    json_bytes: int | None = None
    """Length of the JSON at the beginning of the body, in bytes; None when the whole body is JSON."""

    @property
    def lenient(self) -> bool:
        """True if the dialect accepts unknown fields and ignores them."""
        return self.request.model_config.get("extra") == "ignore"


class FormattedError(Exception):
    """An error with the error format of the request's dialect."""

    def __init__(self, error: Exception, format_error: ErrorFormat) -> None:
        """`error` is rendered with `format_error`."""
        super().__init__(str(error))
        self.error, self.format_error = error, format_error


@contextmanager
def errors_in(dialect: Dialect) -> Iterator[None]:
    """Wrap every error of the block, the panic of a library as well, in a FormattedError; cancellations pass."""
    try:
        with panics_as_errors():
            yield
    except Exception as error:
        raise FormattedError(error, dialect.format_error) from error


def by_path(dialects: Sequence[Dialect]) -> dict[str, tuple[Dialect, ...]]:
    """The dialects of every path, in the given order."""
    found: dict[str, tuple[Dialect, ...]] = {}
    for dialect in dialects:
        for path in dialect.paths:
            found[path] = (*found.get(path, ()), dialect)
    return found


def select_dialect(dialects: Sequence[Dialect], document: Document) -> Dialect:
    """The dialect of a document: the first that matches its fields, or else the path's first dialect."""
    matching = (each for each in dialects[1:] if each.matches is not None and each.matches(document.fields))
    return next(matching, dialects[0])
