"""What makes a dialect: its paths, a translation there and back, and the format of its errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.dialects.wire import Document
from cerberank_service.errors import ServiceError

ErrorFormat = Callable[[ServiceError, str], tuple[int, Any]]
"""Status and JSON-ready body of an error, given the request id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """One wire. `parse` and `render` run in worker threads."""

    paths: tuple[str, ...]
    """Where it is spoken; some are shared, see `shared_paths`."""
    summary: str
    tag: str
    request: type[BaseModel]
    response: Any
    """The answer's type, for OpenAPI."""
    error: type[BaseModel]
    """The body that `format_error` gives, for OpenAPI."""
    parse: Callable[[Document], tuple[RankCall, Any]]
    """The call, and what `render` needs of the request. That holds no more texts than the answer repeats: what is read
    in another process has to come here. Raises ServiceError (400 or 422).
    """
    render: Callable[[RankAnswer, Any], Any]
    """JSON-ready values from the answer and what `parse` kept."""
    format_error: ErrorFormat
    speaks: Callable[[Mapping[str, Any]], bool] | None = None
    """On a shared path: whether a body with these fields is this dialect's; None where it is the path's first."""
    json_bytes: int | None = None
    """How many bytes of the body are JSON; None for all of them."""
