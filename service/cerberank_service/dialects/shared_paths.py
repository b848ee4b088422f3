"""Which dialect a body is in, where several are spoken on one path: the names of its fields tell."""

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


def spoken(dialects: Sequence[Dialect], document: Document) -> Dialect:
    """The dialect of a document: one that claims its fields, else the first."""
    claims = (dialect for dialect in dialects[1:] if dialect.speaks is not None and dialect.speaks(document.fields))
    return next(claims, dialects[0])
