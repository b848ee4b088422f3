"""The routes. Nothing is decided here: bodies go to a dialect, calls to `Ranking`, errors to their clothes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Union

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from opentelemetry.trace import TracerProvider
from pydantic import BaseModel
from pydantic_core import to_json

from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.dialects import DIALECTS, Dialect, tei
from cerberank_service.dialects.open_inference import InferRequest
from cerberank_service.dialects.shared_paths import by_path
from cerberank_service.errors import ErrorBody, Kind, ServiceError
from cerberank_service.http.deadlines import HEADER, read_header
from cerberank_service.http.disconnect import unless_gone
from cerberank_service.http.error_answers import add_error_answers, request_id_of
from cerberank_service.http.open_inference_routes import add_open_inference
from cerberank_service.http.openapi import describe_body, describe_errors, with_components
from cerberank_service.http.pages import add_pages
from cerberank_service.http.response_headers import LOAD_FORMAT, load_report, server_timing
from cerberank_service.ranking.ranking import free
from cerberank_service.ranking.reading import Read, Reading
from cerberank_service.rollout.shadow_figures import judge
from cerberank_service.service import Service
from cerberank_service.settings import PRODUCTION, Limits, Settings
from cerberank_service.telemetry.logs import log_answer
from cerberank_service.telemetry.tracing import RequestSpan
from cerberank_service.versions.describe import describe
from cerberank_service.versions.loading import Loader, load
from cerberank_service.versions.state import State

Handler = Callable[[Request], Awaitable[Response]]
CLIENT_GONE = 499
"""Nobody reads it; what proxies write into their logs."""


class Readiness(BaseModel):
    """What a probe is told."""

    ready: bool
    state: str


def create_app(
    settings: Settings,
    loader: Loader = load,
    *,
    tracer_provider: TracerProvider | None = None,
    limits: Limits = PRODUCTION,
) -> FastAPI:
    """The application; the model loads when it starts."""
    service = Service(settings, loader, tracer_provider, limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.begin_shutdown()
        await service.end_shutdown()

    app = FastAPI(
        title="Cerberank",
        version=version("cerberank"),
        summary="Puts the candidate sentence that answers the question first.",
        lifespan=lifespan,
        responses=describe_errors(ErrorBody),
    )
    keyed = settings.keys_file is not None
    app.state.service = service
    if settings.cors_list:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_list,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id", HEADER],
            expose_headers=["Retry-After", "X-Request-Id", "X-Model-Version"],
        )
    for path, dialects in by_path(DIALECTS).items():
        app.add_api_route(
            path,
            _rank_route(service, dialects),
            methods=["POST"],
            summary=" or ".join(dialect.summary for dialect in dialects),
            tags=[dialect.tag for dialect in dialects],
            response_model=Union[tuple(dialect.response for dialect in dialects)],  # noqa: UP007 - made at run time
            responses=describe_errors(*(dialect.error for dialect in dialects)),
            openapi_extra=describe_body(*(dialect.request for dialect in dialects), keyed=keyed),
        )
    add_open_inference(app, service.served, service.settings, partial(_rank, service))
    _add_plain_routes(app, service)
    add_pages(app)
    dressers = {path: dialects[0].dress for path, dialects in by_path(DIALECTS).items()} | {"/info": tei.dress}
    add_error_answers(app, service.metrics, dressers)
    with_components(app, [*(dialect.request for dialect in DIALECTS), InferRequest], keyed=keyed)
    return app


def _rank_route(service: Service, dialects: Sequence[Dialect]) -> Handler:
    async def rank(request: Request) -> Response:
        return await _rank(service, request, dialects)

    rank.__name__ = f"rank_{dialects[0].tag}"
    return rank


async def _rank(service: Service, request: Request, dialects: Sequence[Dialect]) -> Response:
    """Answer a request in one of the dialects of its path."""
    request_id = request_id_of(request)
    request.state.dress = dialects[0].dress
    with service.tracing.request(request.scope["route"].path, request.headers, request_id) as span:
        return await _answer(service, request, dialects, request_id, span)


async def _answer(
    service: Service, request: Request, dialects: Sequence[Dialect], request_id: str, span: RequestSpan
) -> Response:
    request.state.trace_id = span.trace_id

    def take(read: Read) -> tuple[RankCall, tuple[Dialect, Any]]:
        request.state.dress = read.dialect.dress
        if isinstance(read.made, ServiceError):
            raise read.made
        call, options = read.made
        request.state.question = call.question if service.settings.log_questions else None
        return call, (read.dialect, options)

    reading = Reading(tuple(dialects), service.settings.max_candidates)
    caller = service.access.admit(request.scope["headers"])
    charge = free if caller is None else caller.charge
    timeout = read_header(request.headers.get(HEADER))
    with service.metrics.in_flight.track_inprogress():
        async with service.bodies.received(request) as sent:
            content = await unless_gone(
                request,
                service.ranking.rank(sent, reading, take, _to_bytes, request_id, timeout_ms=timeout, charge=charge),
            )
    if content is None:
        return Response(status_code=CLIENT_GONE)
    rendered, answer = content
    span.answered(answer)
    log_answer(answer, span.trace_id, request.state.question)
    headers = {
        "X-Request-Id": request_id,
        "X-Model-Version": f"{answer.model}@{answer.version}",
        **server_timing(answer.timing),
        **load_report(request.headers.get(LOAD_FORMAT), service.load),
    }
    return Response(rendered, media_type="application/json", headers=headers)


def _to_bytes(answer: RankAnswer, spoken_as: tuple[Dialect, Any]) -> tuple[bytes, RankAnswer]:
    """Rendered and serialised in the worker thread: an answer may hold 10,000 places. The answer goes beside it."""
    dialect, options = spoken_as
    return to_json(dialect.render(answer, options)), answer


def _add_plain_routes(app: FastAPI, service: Service) -> None:
    @app.get("/health/live", tags=["health"], summary="503 when only a new process helps")
    async def live() -> Response:
        broken = service.served.broken
        return Response(to_json({"live": not broken}), 503 if broken else 200, media_type="application/json")

    async def ready() -> Response:
        state = service.served.state
        content = {"ready": state is State.READY, "state": state.value}
        status = 200 if state is State.READY else 503
        return Response(to_json(content), status, media_type="application/json")

    shapes: dict[int | str, dict[str, Any]] = {503: {"model": Readiness, "description": "It takes no questions."}}
    for path, tag in (("/health/ready", "health"), ("/health", "text-embeddings-inference")):
        app.add_api_route(
            path,
            ready,
            tags=[tag],
            summary="200 once golden questions were reproduced",
            response_model=Readiness,
            responses=shapes,
        )

    @app.get("/v1/models", tags=["cerberank"], summary="The models and what has become of them")
    async def models() -> dict[str, list[dict[str, Any]]]:
        return {"models": describe(service.served, service.settings)}

    @app.get(
        "/v1/models/{model}/shadow", tags=["cerberank"], summary="How the shadow version compares to the stable one"
    )
    async def shadow(model: str) -> dict[str, Any]:
        if (figures := service.shadow.figures(model)) is None:
            raise ServiceError(Kind.NOT_FOUND, "this model has no stable and shadow version to compare")
        verdict, why = judge(figures, service.rules.promotion)
        return {"model": model, **figures.describe(), "verdict": verdict.value, "reason": why}

    @app.get(
        "/info",
        tags=["text-embeddings-inference"],
        summary="The served model",
        responses=describe_errors(tei.TeiError),
    )
    async def tei_info() -> dict[str, Any]:
        return tei.info(service.served.find(None, "stable").checkpoint, service.settings)

    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        load = service.load()
        service.metrics.queued_tokens.set(load.queued_tokens)
        service.metrics.queued_seconds.set(load.queued_seconds)
        service.metrics.ready.set(service.served.state is State.READY)
        exposition, media_type = service.metrics.render(request.headers.get("accept", ""))
        return Response(exposition, media_type=media_type)
