"""Reads a request's body up to a limit, whatever `Content-Length` claims."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request

from cerberank_service.errors import Kind, ServiceError


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body. Raises ServiceError 413 as soon as more than `limit` bytes are announced or have come."""
    refused = ServiceError(Kind.TOO_LARGE, f"the body is larger than {limit} bytes; send fewer or shorter candidates")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise refused
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise refused
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise ServiceError(Kind.MALFORMED, "the connection ended before the body did") from error
    return b"".join(chunks)
