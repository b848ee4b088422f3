"""The native dialect, `POST /v1/rank`."""

from __future__ import annotations

from typing import Any

from cerberank_models.ranking.assemble import ResponseOptions, response_of
from cerberank_models.ranking.call import RankCall
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.native_schema import RankRequest, RankResponse
from cerberank_service.dialects.wire import Document, validate
from cerberank_service.errors import ErrorBody, Kind, ServiceError, native_body

ELSEWHERE = {"texts": "/rerank", "passages": "/v1/ranking"}
"""The paths of other dialects, by the field that only their bodies have beside `query`."""


def parse(document: Document) -> tuple[RankCall, ResponseOptions]:
    """The call and the response options of a document. Raises ServiceError (422)."""
    _check_path(document)
    request = validate(RankRequest, document)
    return RankCall.of(request), ResponseOptions.of(request)


def _check_path(document: Document) -> None:
    """Raises ServiceError (422), which names the right path, for a body of another dialect or of several questions."""
    for field in ("questions", "question", "query"):
        if isinstance(document.fields.get(field), list):
            message = f"{field}: this path takes one question; send several to /v1/rank/batch"
            raise ServiceError(Kind.INVALID, message, reason="several questions")
    if "question" not in document.fields and "query" in document.fields:
        for field, path in ELSEWHERE.items():
            if field in document.fields:
                raise ServiceError(
                    Kind.INVALID,
                    f"query, {field}: this path takes query and documents; send a body with these fields to {path}",
                    reason="body of another dialect",
                )


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """The kind's status and the native error body."""
    return error.kind.value, native_body(error, request_id)


NATIVE = Dialect(
    paths=("/v1/rank",),
    summary="Rank candidates for a question",
    tag="cerberank",
    request=RankRequest,
    response=RankResponse,
    error=ErrorBody,
    parse=parse,
    render=response_of,
    format_error=format_error,
)
