"""What a body's bytes decide: the dialect that it is in, and the call that it makes or what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cerberank_models.encoding import MOST_CHARACTERS, Candidate, readable
from cerberank_service.call import RankCall
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.schema import check_fields
from cerberank_service.dialects.shared_paths import spoken
from cerberank_service.errors import Kind, ServiceError


@dataclass(frozen=True, slots=True)
class Read:
    """What was read; an error is a value here, for its clothes are the dialect's."""

    dialect: Dialect
    made: tuple[RankCall, Any] | ServiceError
    """The call with what its dialect renders by."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How bodies of a path are read; goes to another process together with the body, see `large_bodies`."""

    dialects: tuple[Dialect, ...]
    most_candidates: int

    def __call__(self, body: bytes) -> Read:
        """Read one; never raises ServiceError."""
        dialect = self.dialects[0]
        try:
            check_fields(body, self.most_candidates)
            dialect = spoken(self.dialects, body)
            call, options = dialect.parse(body)
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
    """Without what no encoder reads: a text of 15 MB is not worth its way from the process that read it."""
    candidates = tuple(
        Candidate(text=readable(each.text), previous=readable(each.previous), next=readable(each.next))
        for each in call.candidates
    )
    return replace(call, question=readable(call.question), candidates=candidates)
