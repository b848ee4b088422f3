"""Turns a body's bytes into a call: parses the JSON once, selects its dialect, and lets the dialect build the call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cerberank_models.encoding import MOST_CHARACTERS, Candidate, readable
from cerberank_service.call import RankCall
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.shared_paths import select_dialect
from cerberank_service.dialects.wire import check_fields, read_json
from cerberank_service.errors import Kind, ServiceError


@dataclass(frozen=True, slots=True)
class Read:
    """The result of reading a body. An error is a value, because it is formatted by the dialect that was selected."""

    dialect: Dialect
    outcome: tuple[RankCall, Any] | ServiceError
    """The call with its dialect's rendering options, or the error."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the bodies of one path. It is pickled and sent to the process that parses large bodies."""

    dialects: tuple[Dialect, ...]
    most_candidates: int

    def __call__(self, body: bytes) -> Read:
        """Read a body; never raises ServiceError."""
        dialect = self.dialects[0]
        try:
            check_fields(body, self.most_candidates)
            document = read_json(body, dialect.json_bytes)
            dialect = select_dialect(self.dialects, document)
            call, options = dialect.parse(document)
            self._check_candidates(call)
        except ServiceError as error:
            return Read(dialect, error)
        return Read(dialect, (call if len(body) <= MOST_CHARACTERS else _readable(call), options))

    def _check_candidates(self, call: RankCall) -> None:
        if (count := len(call.candidates)) > self.most_candidates:
            raise ServiceError(
                Kind.INVALID,
                f"candidates: {count} are more than the limit of {self.most_candidates}; send fewer, "
                "or raise CERBERANK_MAX_CANDIDATES",
            )


def _readable(call: RankCall) -> RankCall:
    """The call with every text cut to what the encoder reads; longer text would be copied and hashed for nothing."""
    candidates = tuple(
        Candidate(text=readable(each.text), previous=readable(each.previous), next=readable(each.next))
        for each in call.candidates
    )
    return replace(call, question=readable(call.question), candidates=candidates)
