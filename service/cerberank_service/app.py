"""The public app: its routes, their dialects and error formats, and its lifespan."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial
from typing import Any, TypedDict, Union

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from opentelemetry.trace import TracerProvider
from pydantic import BaseModel

from cerberank_models import __version__
from cerberank_service.dialects import DIALECTS, Dialect, sagemaker, tei, vllm, weaviate
from cerberank_service.dialects.dialect import ErrorFormat, by_path
from cerberank_service.dialects.embeddings import EmbeddingsAnswer, EmbeddingsRequest
from cerberank_service.dialects.native_batch import BatchRequest, BatchResponse
from cerberank_service.dialects.open_inference import InferError, InferRequest
from cerberank_service.errors import ErrorBody, Kind, ServiceError
from cerberank_service.http import batch_route, embeddings_route, open_inference_routes
from cerberank_service.http.accept import CALIBRATED, TIMEOUT
from cerberank_service.http.batch_route import BatchRoute
from cerberank_service.http.body import Bodies
from cerberank_service.http.connections import AnswersHead, Guard
from cerberank_service.http.embeddings_route import EmbeddingsRoute
from cerberank_service.http.error_responses import ErrorResponses
from cerberank_service.http.openapi import (
    add_document,
    describe_body,
    describe_errors,
    describe_path,
    operation_id,
    with_components,
)
from cerberank_service.http.plain_routes import PROBES, Exposition, add_health, add_metrics, add_models, add_pages
from cerberank_service.http.rank_route import RankRoute
from cerberank_service.http.response_headers import ANSWERABLE, UNREAD
from cerberank_service.service import Service
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import Loader, load

CLIENT_SECONDS = 30.0
"""Time-out for receiving a body."""
EXPOSITION_SECONDS = 1.0
"""Seconds for which an exposition of the metrics is cached, because rendering takes milliseconds."""


def create_app(
    settings: Settings,
    loader: Loader = load,
    *,
    tracer_provider: TracerProvider | None = None,
    exposition_seconds: float = EXPOSITION_SECONDS,
    dialects: Sequence[Dialect] = DIALECTS,
) -> FastAPI:
    """The application. The model is loaded when the application starts."""
    paths = by_path(dialects)
    service = Service(settings, loader, tracer_provider)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.refuse()
        await service.end_shutdown()

    app = FastAPI(
        title="Cerberank",
        version=__version__,
        summary="Puts the candidate sentence that answers the question first.",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name `http` behind a proxy that ends TLS
        responses=describe_errors(ErrorBody),
        generate_unique_id_function=operation_id,
        openapi_tags=_sections(dialects),
    )
    app.state.service = service
    if settings.cors_list:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_list,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id", "X-Correlation-Id", TIMEOUT, CALIBRATED],
            expose_headers=["Retry-After", "Server-Timing", "X-Request-Id", "X-Model-Version", ANSWERABLE, *UNREAD],
        )
    keyed = settings.keys_file is not None
    errors = ErrorResponses(service, _error_formats(paths))
    errors.handle(app)
    if settings.host_list:
        app.add_middleware(Guard, refusal=partial(wrong_host, settings.host_list), errors=errors)
    app.add_middleware(AnswersHead)
    bodies = Bodies(
        limit=settings.max_body_bytes,
        seconds=CLIENT_SECONDS,
        total_bytes=settings.max_bodies_bytes,
    )
    rank = RankRoute(service, errors, bodies)
    for path, sharing in paths.items():
        app.add_api_route(
            path,
            _handler(rank, sharing),
            methods=["POST"],
            response_model=Union[tuple(dialect.response for dialect in sharing)],  # noqa: UP007 - made at run time
            responses=describe_errors(*(dialect.error for dialect in sharing)),
            openapi_extra=describe_body(*(dialect.request for dialect in sharing), keyed=keyed) | describe_path(path),
            **_described(path, sharing),
        )
    app.add_api_route(
        batch_route.PATH,
        BatchRoute(rank).__call__,
        methods=["POST"],
        name="rank_batch",
        summary="Rank the candidates of several questions",
        tags=["cerberank"],
        response_model=BatchResponse,
        openapi_extra=describe_body(BatchRequest, keyed=keyed),
    )
    app.add_api_route(
        embeddings_route.PATH,
        EmbeddingsRoute(rank).__call__,
        methods=["POST"],
        name="embeddings",
        summary="Vectors of texts, by the bi-encoder of a model's first stage",
        tags=["openai"],
        response_model=EmbeddingsAnswer,
        responses=describe_errors(vllm.VllmError),
        openapi_extra=describe_body(EmbeddingsRequest, keyed=keyed),
    )
    open_inference_routes.add(app, service, rank)
    add_health(app, service)
    add_models(app, service)
    add_metrics(app, Exposition(service, seconds=exposition_seconds))
    add_document(app)
    add_pages(app)
    requests: list[type[BaseModel]] = [
        *(dialect.request for dialect in dialects),
        InferRequest,
        BatchRequest,
        EmbeddingsRequest,
    ]
    failures: list[type[BaseModel]] = [*(dialect.error for dialect in dialects), ErrorBody, InferError]
    with_components(app, requests, failures)
    return app


def _error_formats(paths: Mapping[str, Sequence[Dialect]]) -> dict[str, ErrorFormat]:
    """The error format of each path, for errors that occur before the dialect of the body is known.

    A path with a parameter stands for all paths that begin as it does, because no route matches a line feed in it.
    """
    formats = {path.partition("{")[0]: dialects[0].format_error for path, dialects in paths.items()}
    others = {"/info": tei.format_error, "/meta": weaviate.format_error, embeddings_route.PATH: vllm.format_error}
    return formats | others | open_inference_routes.ERROR_FORMATS


def _sections(dialects: Sequence[Dialect]) -> list[dict[str, Any]]:
    """The sections of the OpenAPI document in their order, with a sentence for each dialect."""
    own = "Use `POST /v1/rank`, unless you have a client that speaks one of the interfaces below."
    others = {dialect.tag: f"For clients of {dialect.tag}." for dialect in dialects}
    return [{"name": tag, "description": text} for tag, text in (others | {"cerberank": own}).items()]


class Described(TypedDict):
    """The title, sections and text of a path in the OpenAPI document."""

    summary: str
    tags: list[str | Enum]
    description: str


def _described(path: str, sharing: Sequence[Dialect]) -> Described:
    if path in sagemaker.PATHS:
        text = "Takes the body of any other API here, recognised by its fields, and answers in its format."
        return {"summary": "SageMaker invocations", "tags": ["sagemaker"], "description": text}
    names, sections = [dialect.summary for dialect in sharing], [dialect.tag for dialect in sharing]
    text = "Scores the candidates of one question and returns them, best first."
    if len(sharing) > 1:
        text += " The fields of the body decide which of these APIs is meant."
    return {"summary": " or ".join(names), "tags": [*sections], "description": text}


def _handler(rank: RankRoute, dialects: tuple[Dialect, ...]) -> Callable[[Request], Awaitable[Response]]:
    async def handler(request: Request) -> Response:
        return await rank(request, dialects)

    handler.__name__ = f"rank_{dialects[0].tag}"
    return handler


HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:@/?#\[\]]+)(:\d*)?")
"""A host name or an address, and an optional port."""
ANY_HOST = frozenset({*PROBES, "/health/live", "/v2/health/live", "/v2/health/ready", "/metrics"})
"""Paths that are answered for any host, because load balancers, Kubernetes and Prometheus use the IP address."""


def wrong_host(hosts: Sequence[str], request: Request) -> ServiceError | None:
    """The error of a request for another host than `hosts`, against DNS rebinding.

    In that attack another site's name resolves to the service's address. The browser then treats the site and the
    service as one origin, but its requests still have the site's name in `Host`. Names are compared as in starlette's
    TrustedHostMiddleware. Unlike there, the error is in the format of the path, and `Host` may be an IPv6 address.

    `hosts` are names in lower case, addresses (`[::1]`), `*.example.org` for all names below that one, or `*` for any.
    """
    match = HOST.fullmatch(request.headers.get("host", "").lower())
    host = "" if match is None else match[1]
    if request.scope["path"] in ANY_HOST or any(
        name in {"*", host} or (name.startswith("*.") and host.endswith(name[1:])) for name in hosts
    ):
        return None
    return ServiceError(
        Kind.MALFORMED,
        "this service does not answer to the name in the header Host; CERBERANK_ALLOWED_HOSTS lists its names",
        reason="a host that is not allowed",
    )
