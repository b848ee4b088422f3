"""The description of a dialect: its paths, its parser and renderer, and its error format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import AliasChoices, BaseModel

from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_service.dialects.wire import Document
from cerberank_service.errors import ServiceError, panics_as_errors

ErrorFormat = Callable[[ServiceError, str], tuple[int, Any]]
"""A function that returns an error's status and JSON-ready body, given the request id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """One wire format. `parse` and `render` run in worker threads."""

    paths: tuple[str, ...]
    """The dialect's paths; some are shared with other dialects, see `select_dialect`."""
    summary: str
    tag: str
    request: type[BaseModel]
    response: Any
    """The type of the answer, for OpenAPI."""
    error: type[BaseModel]
    """The type of the error body that `format_error` returns, for OpenAPI."""
    parse: Callable[[Document], tuple[RankCall, Any]]
    """Returns the call and the options for `render`. Raises ServiceError (400 or 422)."""
    render: Callable[[RankAnswer, Any], Any]
    """Returns JSON-ready values for an answer and the options from `parse`."""
    format_error: ErrorFormat
    matches: Callable[[Mapping[str, Any]], bool] | None = None
    """True if a body with these fields is in this dialect, for shared paths; None for the path's first dialect."""

    def knows(self, name: str) -> bool:
        """True for the name of a field of the request, or for another name of one."""
        fields = self.request.model_fields
        others = (field.validation_alias for field in fields.values())
        return name in fields or any(isinstance(other, AliasChoices) and name in other.choices for other in others)


class FormattedError(Exception):
    """An error, with the format in which the request's dialect reports it."""

    def __init__(self, error: Exception, format_error: ErrorFormat) -> None:
        """Wrap `error`, to be rendered with `format_error`."""
        super().__init__(str(error))
        self.error = error
        self.format_error = format_error


@contextmanager
def errors_in(dialect: Dialect) -> Iterator[None]:
    """Wrap every error of the block, panics of libraries included, in a FormattedError; cancellations pass through."""
    try:
        with panics_as_errors():
            yield
    except Exception as error:
        raise FormattedError(error, dialect.format_error) from error


def by_path(dialects: Sequence[Dialect]) -> dict[str, tuple[Dialect, ...]]:
    """The dialects of each path, in the order of `dialects`."""
    sharing: dict[str, tuple[Dialect, ...]] = {}
    for dialect in dialects:
        for path in dialect.paths:
            sharing[path] = (*sharing.get(path, ()), dialect)
    return sharing


def select_dialect(dialects: Sequence[Dialect], document: Document) -> Dialect:
    """The dialect of a document: the first that matches its fields, or else the path's first dialect."""
    matching = (each for each in dialects[1:] if each.matches is not None and each.matches(document.fields))
    return next(matching, dialects[0])
