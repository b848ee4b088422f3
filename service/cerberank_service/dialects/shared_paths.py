"""Which dialect a body is in, where several are spoken on one path: the names of its fields tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.schema import repair


def by_path(dialects: Sequence[Dialect]) -> dict[str, tuple[Dialect, ...]]:
    """The dialects of every path, in the given order."""
    found: dict[str, tuple[Dialect, ...]] = {}
    for dialect in dialects:
        for path in dialect.paths:
            found[path] = (*found.get(path, ()), dialect)
    return found


def spoken(dialects: Sequence[Dialect], body: bytes) -> Dialect:
    """The dialect of `body`: one that claims its fields, else the first."""
    if len(dialects) == 1:
        return dialects[0]
    fields = _fields(body)
    claims = (dialect for dialect in dialects[1:] if dialect.speaks is not None and dialect.speaks(fields))
    return next(claims, dialects[0])


def _fields(body: bytes) -> Mapping[str, Any]:
    try:
        read = from_json(body, cache_strings="keys")
    except ValueError:
        repaired = repair(body)
        return {} if repaired == body else _fields(repaired)  # the dialect's own parse says what is wrong
    return read if isinstance(read, dict) else {}
