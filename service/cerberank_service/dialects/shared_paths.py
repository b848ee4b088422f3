"""Selects the dialect of a body by the names of its fields, on paths that several dialects share."""

from __future__ import annotations

from collections.abc import Sequence

from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.wire import Document


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
