"""What makes a dialect: a path, a translation there and back, and the clothes of its errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.errors import ServiceError


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """One wire. `parse` and `render` run in worker threads."""

    path: str
    summary: str
    tag: str
    request: type[BaseModel]
    response: Any
    """The answer's type, for OpenAPI."""
    parse: Callable[[bytes], tuple[RankCall, Any]]
    """Raises ServiceError (400 or 422)."""
    render: Callable[[RankAnswer, Any], Any]
    """JSON-ready values from the answer and the parsed request."""
    dress: Callable[[ServiceError, str], tuple[int, Any]]
    """Status and body of an error, given the request id."""
