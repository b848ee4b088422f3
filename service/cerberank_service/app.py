"""The public app: its routes, their dialects and error formats, and its lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Union

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from opentelemetry.trace import TracerProvider

from cerberank_models import __version__
from cerberank_service.dialects import DIALECTS, Dialect, tei
from cerberank_service.dialects.dialect import ErrorFormat
from cerberank_service.dialects.native_batch import BatchRequest, BatchResponse
from cerberank_service.dialects.open_inference.infer import InferRequest
from cerberank_service.dialects.shared_paths import by_path
from cerberank_service.errors import ErrorBody
from cerberank_service.http import batch_route, open_inference_routes
from cerberank_service.http.batch_route import BatchRoute
from cerberank_service.http.deadlines import HEADER
from cerberank_service.http.error_responses import ErrorResponses
from cerberank_service.http.exposition import Exposition, add_metrics
from cerberank_service.http.hosts import AllowedHosts
from cerberank_service.http.openapi import add_document, describe_body, describe_errors, describe_path, with_components
from cerberank_service.http.pages import add_pages
from cerberank_service.http.plain_routes import add_health, add_models
from cerberank_service.http.rank_route import RankRoute
from cerberank_service.http.response_headers import UNREAD
from cerberank_service.service import Service
from cerberank_service.settings import Settings
from cerberank_service.settings.limits import PRODUCTION, Limits
from cerberank_service.versions.loading import Loader, load


def create_app(
    settings: Settings,
    loader: Loader = load,
    *,
    tracer_provider: TracerProvider | None = None,
    limits: Limits = PRODUCTION,
    dialects: Sequence[Dialect] = DIALECTS,
) -> FastAPI:
    """The application; the model loads when it starts."""
    paths = by_path(dialects)
    service = Service(settings, loader, tracer_provider, limits)
    service.metrics.families.create(dialect=[dialect.tag for dialect in dialects if dialect.lenient])

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
        responses=describe_errors(ErrorBody),
    )
    app.state.service = service
    if settings.cors_list:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_list,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id", "X-Correlation-Id", HEADER],
            expose_headers=["Retry-After", "X-Request-Id", "X-Model-Version", *UNREAD],
        )
    keyed = settings.keys_file is not None
    errors = ErrorResponses(service.metrics, _error_formats(paths))
    errors.handle(app)
    if settings.host_list:
        app.add_middleware(AllowedHosts, hosts=settings.host_list, errors=errors)
    rank = RankRoute(
        settings=settings,
        access=service.access,
        bodies=service.bodies,
        workers=service.workers,
        versions=service.versions,
        ranking=service.ranking,
        shadow=service.shadow,
        metrics=service.metrics,
        tracing=service.tracing,
        errors=errors,
        load=service.load,
    )
    for path, spoken in paths.items():
        app.add_api_route(
            path,
            _handler(rank, spoken),
            methods=["POST"],
            summary=" or ".join(dialect.summary for dialect in spoken),
            tags=[dialect.tag for dialect in spoken],
            response_model=Union[tuple(dialect.response for dialect in spoken)],  # noqa: UP007 - made at run time
            responses=describe_errors(*(dialect.error for dialect in spoken)),
            openapi_extra=describe_body(*(dialect.request for dialect in spoken), keyed=keyed) | describe_path(path),
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
    open_inference_routes.add(app, service.versions, settings, rank)
    add_health(app, service.versions, settings)
    add_models(app, service.versions, service.shadow, settings)
    add_metrics(app, Exposition(service.metrics, service.versions, service.load, seconds=limits.exposition_seconds))
    add_document(app)
    add_pages(app)
    with_components(app, [*(dialect.request for dialect in dialects), InferRequest, BatchRequest], keyed=keyed)
    return app


def _error_formats(paths: Mapping[str, Sequence[Dialect]]) -> dict[str, ErrorFormat]:
    """The error format of each path, for errors that occur before the dialect is known."""
    formats = {path: dialects[0].format_error for path, dialects in paths.items()}
    return formats | {"/info": tei.format_error} | open_inference_routes.ERROR_FORMATS


def _handler(rank: RankRoute, dialects: tuple[Dialect, ...]) -> Callable[[Request], Awaitable[Response]]:
    async def handler(request: Request) -> Response:
        return await rank(request, dialects)

    handler.__name__ = f"rank_{dialects[0].tag}"
    return handler
