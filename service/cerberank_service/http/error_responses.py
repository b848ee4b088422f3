"""Turns every error of an app into a response, in the native error format or in the format of the path's dialect."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from cerberank_models.request import describe_problems
from cerberank_service.dialects.dialect import ErrorFormat
from cerberank_service.dialects.native import format_error as native_format
from cerberank_service.engine.faults import is_shortage
from cerberank_service.errors import Kind, Refusal, ServiceError, reason_of
from cerberank_service.service import Service
from cerberank_service.telemetry.logs import LONGEST_PATH, RefusalLog, log_error, request_fields
from cerberank_service.telemetry.series import ERRORS, REFUSED_REQUESTS

LONGEST_REASON = 200
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class ErrorResponses:
    """Turns errors into responses, counts them and logs them."""

    def __init__(self, service: Service, formats: Mapping[str, ErrorFormat] | None = None) -> None:
        """`formats` are the error formats by route path; a key that ends in "/" stands for all paths below it
        that are not keys themselves.

        Every other path has the native format.
        """
        self._service = service
        self._formats = formats or {}
        self._refusals = RefusalLog()

    def handle(self, app: FastAPI) -> None:
        """Register this object for the errors that routes of `app` raise, and for unknown paths and methods."""
        for kind in (ServiceError, HTTPException, RequestValidationError, Exception):
            app.add_exception_handler(kind, self.of_path)

    async def of_path(self, request: Request, error: Exception) -> Response:
        """The response to `error` in the error format of the request's path."""
        path = getattr(request.scope.get("route"), "path", with_single_slashes(request.url.path))
        below = (prefix for prefix in self._formats if prefix.endswith("/") and path.startswith(prefix))
        known = path if path in self._formats else next(below, path)
        return self.respond(error, request, self._formats.get(known, native_format))

    def respond(
        self,
        error: Exception,
        request: Request,
        format_error: ErrorFormat = native_format,
        *,
        trace_id: str | None = None,
    ) -> Response:
        """Log `error` and return the response to it; unexpected errors are logged with their traceback."""
        request_id = request_id_of(request)
        service_error = self.note(error, request, request_id, trace_id)
        status, body = format_error(service_error, request_id)
        allow = (error.headers or {}) if isinstance(error, HTTPException) else {}
        headers = {**allow, **service_error.headers, "X-Request-Id": request_id}
        if service_error.kind in {Kind.TOO_LARGE, Kind.TIMEOUT}:
            headers["Connection"] = "close"  # the rest of the body is not read
        return Response(to_json(body), status, media_type="application/json", headers=headers)

    def note(self, error: Exception, request: Request, request_id: str, trace_id: str | None) -> ServiceError:
        """Log and count an error; returns the error to send to the client."""
        service_error = as_service_error(error, request)
        unexpected = error if service_error.kind is Kind.INTERNAL and service_error is not error else None
        level = logging.ERROR if service_error.kind is Kind.INTERNAL else logging.INFO
        if service_error.refusal is not None:
            level = self._refusals.level_of(service_error.refusal)
        log_error(service_error, request_id, request_fields(request), trace_id, unexpected, level=level)
        self._service.metrics[ERRORS].labels(service_error.kind.label).inc()
        if service_error.refusal is not None:
            self._service.metrics[REFUSED_REQUESTS].labels(service_error.refusal.reason).inc()
        if service_error.kind is Kind.UNAVAILABLE and service_error is not error:
            self._service.versions.count_shortage()
        return service_error


def as_service_error(error: Exception, request: Request) -> ServiceError:
    """The error to send to the client that sent `request`, without internal details."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, RequestValidationError):
        return ServiceError(Kind.INVALID, describe_problems(error.errors()), reason=reason_of(error.errors()))
    if isinstance(error, HTTPException) and error.status_code == Kind.METHOD_NOT_ALLOWED.value:
        allowed = (error.headers or {}).get("Allow", "another method")
        return ServiceError(Kind.METHOD_NOT_ALLOWED, f"this path takes {allowed}, not {request.method[:20]}; see /docs")
    if isinstance(error, HTTPException) and error.status_code == Kind.NOT_FOUND.value:
        path, right = request.url.path, with_single_slashes(request.url.path)
        if right != path:
            hint = f"without the superfluous slash it is {right[:LONGEST_PATH]}"
        else:
            near = nearest_path(path, [route.path for route in request.app.routes if isinstance(route, APIRoute)])
            hint = f"is {near} meant? See /docs" if near else "see /docs"
        return ServiceError(Kind.NOT_FOUND, f"there is no such path; {hint}")
    if isinstance(error, HTTPException) and error.status_code == Kind.MALFORMED.value:
        return ServiceError(Kind.MALFORMED, "the body could not be read")
    return _unexpected(error)


def _unexpected(error: Exception) -> ServiceError:
    if isinstance(error, MemoryError) or is_shortage(error):
        text = "this replica lacks memory, threads or descriptors; ask another one"
        return ServiceError(
            Kind.UNAVAILABLE, text, retry_after=5, reason=repr(error)[:LONGEST_REASON], refusal=Refusal("memory")
        )
    return ServiceError(Kind.INTERNAL, "an unexpected error; its details are in the service's log")


def nearest_path(path: str, known: Sequence[str]) -> str | None:
    """The known path that has the same end as an unknown one, or is spelt much like it; None without any.

    >>> nearest_path("/rank", ["/v1/rank", "/v1/rank/batch"]), nearest_path("/v1/v1/rank", ["/rank", "/v1/rank"])
    ('/v1/rank', '/v1/rank')
    """
    if len(path) > LONGEST_PATH or len(path) < 2:
        return None
    ends = [each for each in known if len(each) > 1 and (each.endswith(path) or path.endswith(each))]
    return max(ends, key=len) if ends else next(iter(get_close_matches(path, known, n=1, cutoff=0.8)), None)


def with_single_slashes(path: str) -> str:
    """The path without repeated slashes, and without one at its end.

    >>> with_single_slashes("//v1/rerank/"), with_single_slashes("/")
    ('/v1/rerank', '/')
    """
    return "/" + "/".join(part for part in path.split("/") if part) if path.startswith("/") else path


def request_id_of(request: Request) -> str:
    """The client's `X-Request-Id` or `X-Correlation-Id` if it is safe for a log line, or else a new id."""
    request_id: str | None = getattr(request.state, "request_id", None)
    if request_id is None:
        header = request.headers.get("x-request-id") or request.headers.get("x-correlation-id", "")
        request_id = header if REQUEST_ID.fullmatch(header) else uuid.uuid4().hex
        request.state.request_id = request_id
    return request_id
