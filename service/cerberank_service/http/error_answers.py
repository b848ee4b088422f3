"""Answers every error of an app with the one body, or in the clothes of the dialect that was spoken."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from cerberank_service.dialects.native import dress as native_dress
from cerberank_service.errors import Kind, ServiceError, describe_problems
from cerberank_service.telemetry.logs import log_error
from cerberank_service.telemetry.metrics import Metrics

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
Dress = Callable[[ServiceError, str], tuple[int, Any]]


def add_error_answers(app: FastAPI, metrics: Metrics, dressers: Mapping[str, Dress]) -> None:
    """Give `app` its handlers. `dressers` are by path; `request.state.dress`, once known, comes before them."""

    async def answer(request: Request, error: Exception) -> Response:
        known = as_service_error(error)
        request_id = request_id_of(request)
        unforeseen = error if known.kind is Kind.INTERNAL and known is not error else None
        log_error(known, request_id, getattr(request.state, "trace_id", None), unforeseen)
        dress = getattr(request.state, "dress", dressers.get(request.url.path, native_dress))
        allow = (error.headers or {}) if isinstance(error, HTTPException) else {}
        return error_response(known, request_id, metrics, dress=dress, headers=allow)

    for kind in (ServiceError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, answer)


def error_response(
    error: ServiceError,
    request_id: str,
    metrics: Metrics,
    *,
    dress: Dress = native_dress,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The response to `error`, which is counted."""
    metrics.errors.labels(error.kind.label).inc()
    status, body = dress(error, request_id)
    sent = {**(headers or {}), **error.headers, "X-Request-Id": request_id}
    if error.kind in {Kind.TOO_LARGE, Kind.TIMEOUT}:
        sent["Connection"] = "close"  # the rest of the body is not read
    return Response(to_json(body), status, media_type="application/json", headers=sent)


def as_service_error(error: Exception) -> ServiceError:
    """The error as a client may see it: never its internals."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, RequestValidationError):
        return ServiceError(Kind.INVALID, describe_problems(error.errors()))
    if isinstance(error, HTTPException) and error.status_code == Kind.METHOD_NOT_ALLOWED.value:
        return ServiceError(Kind.METHOD_NOT_ALLOWED, "this path does not answer to that method; see /docs")
    if isinstance(error, HTTPException) and error.status_code == Kind.NOT_FOUND.value:
        return ServiceError(Kind.NOT_FOUND, "there is no such path; see /docs")
    if isinstance(error, HTTPException) and error.status_code == Kind.MALFORMED.value:
        return ServiceError(Kind.MALFORMED, "the body could not be read")
    return ServiceError(Kind.INTERNAL, "an unexpected error; its details are in the service's log")


def request_id_of(request: Request) -> str:
    """The caller's `X-Request-Id` when it is fit for a log line, else a fresh one."""
    known: str | None = getattr(request.state, "request_id", None)
    if known is None:
        given = request.headers.get("x-request-id", "")
        known = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        request.state.request_id = known
    return known
