"""Turns the bytes of a body into a call: parses the JSON, selects the dialect, and lets the dialect build the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cerberank_models.ranking.call import RankCall
from cerberank_service.dialects.dialect import Dialect, errors_in, select_dialect
from cerberank_service.dialects.wire import Document, check_count, check_structure, read_json

SHORT_LIST = 64
"""Length up to which a list is not checked against the limit of candidates; other lists are never longer."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call, its dialect, and the dialect's options for rendering the answer."""

    dialect: Dialect
    call: RankCall
    options: Any
    ignored: tuple[str, ...] = ()
    """Names of the body's fields that its dialect does not know; they are accepted and have no effect."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the bodies of one path."""

    dialects: tuple[Dialect, ...]
    most_candidates: int
    path: Mapping[str, str] = field(default_factory=dict)
    """The parameters of the request's path."""
    json_bytes: int | None = None
    """Length of the JSON at the beginning of the body, in bytes; None when the whole body is JSON."""

    def __call__(self, body: bytes) -> ParsedCall:
        """Read a body. Raises FormattedError, in the first dialect's format until the body's dialect is known."""
        with errors_in(self.dialects[0]):
            check_structure(body[: self.json_bytes], self.most_candidates)
            document = read_json(body, self.json_bytes)
        return self.read(replace(document, path=self.path, most_candidates=self.most_candidates))

    def read(self, document: Document) -> ParsedCall:
        """Read a parsed body. Raises FormattedError."""
        with errors_in(self.dialects[0]):
            dialect = select_dialect(self.dialects, document)
        with errors_in(dialect):
            # Checked before the dialect creates the candidates, which takes a microsecond each.
            for name, value in document.content.items() if isinstance(document.content, dict) else ():
                if isinstance(value, list) and len(value) > SHORT_LIST:
                    check_count(name, len(value), self.most_candidates)
            call, options = dialect.parse(document)
            check_count("candidates", len(call.candidates), self.most_candidates)
        ignored = tuple(name for name in document.fields if not dialect.knows(name))
        return ParsedCall(dialect, call, options, ignored)
