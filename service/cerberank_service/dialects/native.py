"""`POST /v1/rank`."""

from __future__ import annotations

from typing import Any

from cerberank_service import schema
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.errors import ErrorBody, ServiceError, native_body


def dress(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """The kind's status and our own body."""
    return error.kind.value, native_body(error, request_id)


NATIVE = Dialect(
    paths=("/v1/rank",),
    summary="Rank candidates for a question",
    tag="cerberank",
    request=schema.RankRequest,
    response=schema.RankResponse,
    error=ErrorBody,
    parse=schema.parse,
    render=schema.render,
    dress=dress,
)
