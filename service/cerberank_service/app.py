"""The routes. Nothing is decided here: bodies go to a dialect, calls to `Ranking`, errors to their clothes."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Union

from fastapi import FastAPI, Request, Response
from opentelemetry.trace import TracerProvider
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from cerberank_service.body import read_body
from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.deadlines import HEADER, read_header
from cerberank_service.dialects import DIALECTS, NATIVE, Dialect, tei
from cerberank_service.dialects.open_inference import InferRequest
from cerberank_service.dialects.shared_paths import by_path, spoken
from cerberank_service.disconnect import unless_gone
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.live import LiveModel, Loader, State, load
from cerberank_service.logs import log_answer, log_error
from cerberank_service.metrics import Metrics
from cerberank_service.open_inference_routes import add_open_inference
from cerberank_service.openapi import describe_body, with_components
from cerberank_service.pages import add_pages
from cerberank_service.ranking import Ranking
from cerberank_service.response_headers import LOAD_FORMAT, Load, load_report, server_timing
from cerberank_service.settings import Settings
from cerberank_service.tracing import RequestSpan, Tracing
from cerberank_service.workers import Workers

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
JOIN_SECONDS = 5.0
"""For the step that is running; a model that hangs longer than that dies with the process."""
CLIENT_GONE = 499
"""Nobody reads it; what proxies write into their logs."""
Handler = Callable[[Request], Awaitable[Response]]


class Service:
    """What one app owns; made by `create_app`, found at `app.state.service`."""

    def __init__(self, settings: Settings, loader: Loader, tracer_provider: TracerProvider | None) -> None:
        """Nothing runs before `start`."""
        self.settings = settings
        self.tracing = Tracing(tracer_provider)
        self.metrics = Metrics()
        self.workers = Workers(settings.encode_workers)
        self.live = LiveModel(settings, self.metrics, loader)
        self.ranking = Ranking(settings, self.live, self.workers, self.metrics)
        self._stopping = False

    def start(self) -> None:
        """Begin to load the model."""
        self.live.start()

    def begin_shutdown(self) -> None:
        """Refuse new requests; those being handled may still take the drain time. Called on the event loop."""
        if not self._stopping:
            self._stopping = True
            self.live.refuse()
            asyncio.get_running_loop().call_later(self.settings.drain_seconds, self.live.stop)

    def load(self) -> Load:
        """What is accepted and not answered, now."""
        engine = self.live.engine
        return Load(
            queued_tokens=0 if engine is None else engine.queued_tokens,
            queued_seconds=0.0 if engine is None else engine.queued_seconds,
            requests_in_flight=self.metrics.count_in_flight(),
        )

    async def end_shutdown(self) -> None:
        """Nobody waits any more: end the threads."""
        self.live.stop()
        await self.workers.run(partial(self.live.join, JOIN_SECONDS))
        self.workers.close()


def create_app(settings: Settings, loader: Loader = load, *, tracer_provider: TracerProvider | None = None) -> FastAPI:
    """The application; the model loads when it starts."""
    service = Service(settings, loader, tracer_provider)

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
    )
    app.state.service = service
    for path, dialects in by_path(DIALECTS).items():
        app.add_api_route(
            path,
            _rank_route(service, dialects),
            methods=["POST"],
            summary=" or ".join(dialect.summary for dialect in dialects),
            tags=[dialect.tag for dialect in dialects],
            response_model=Union[tuple(dialect.response for dialect in dialects)],  # noqa: UP007 - made at run time
            openapi_extra=describe_body(*(dialect.request for dialect in dialects)),
        )
    add_open_inference(app, service.live, service.settings, partial(_rank, service))
    _add_plain_routes(app, service)
    add_pages(app)
    _add_error_handlers(app, service)
    with_components(app, [*(dialect.request for dialect in DIALECTS), InferRequest])
    return app


def _rank_route(service: Service, dialects: Sequence[Dialect]) -> Handler:
    async def rank(request: Request) -> Response:
        return await _rank(service, request, dialects)

    rank.__name__ = f"rank_{dialects[0].tag}"
    return rank


async def _rank(service: Service, request: Request, dialects: Sequence[Dialect]) -> Response:
    """Answer a request in one of the dialects of its path."""
    request_id = _request_id(request)
    request.state.dress = dialects[0].dress
    with service.tracing.request(request.scope["route"].path, request.headers, request_id) as span:
        return await _answer(service, request, dialects, request_id, span)


async def _answer(
    service: Service, request: Request, dialects: Sequence[Dialect], request_id: str, span: RequestSpan
) -> Response:
    request.state.trace_id = span.trace_id

    def parse(body: bytes) -> tuple[RankCall, tuple[Dialect, Any]]:
        dialect = spoken(dialects, body)
        request.state.dress = dialect.dress
        call, options = dialect.parse(body)
        return call, (dialect, options)

    timeout = read_header(request.headers.get(HEADER))
    with service.metrics.in_flight.track_inprogress():
        body = await read_body(request, service.settings.max_body_bytes)
        content = await unless_gone(
            request, service.ranking.rank(body, parse, _to_bytes, request_id, timeout_ms=timeout)
        )
    if content is None:
        return Response(status_code=CLIENT_GONE)
    rendered, answer = content
    span.answered(answer)
    log_answer(answer, span.trace_id)
    load = load_report(request.headers.get(LOAD_FORMAT), service.load)
    headers = {"X-Request-Id": request_id, **server_timing(answer.timing), **load}
    return Response(rendered, media_type="application/json", headers=headers)


def _to_bytes(answer: RankAnswer, spoken_as: tuple[Dialect, Any]) -> tuple[bytes, RankAnswer]:
    """Rendered and serialised in the worker thread: an answer may hold 10,000 places."""
    dialect, options = spoken_as
    return to_json(dialect.render(answer, options)), answer


def _add_plain_routes(app: FastAPI, service: Service) -> None:
    @app.get("/health/live", tags=["health"], summary="Whether the process runs")
    async def live() -> dict[str, bool]:
        return {"live": True}

    async def ready() -> Response:
        state = service.live.state
        content = {"ready": state is State.READY, "state": state.value}
        status = 200 if state is State.READY else 503
        return Response(to_json(content), status, media_type="application/json")

    app.add_api_route("/health/ready", ready, tags=["health"], summary="200 once golden questions were reproduced")
    app.add_api_route("/health", ready, tags=["text-embeddings-inference"], summary="As /health/ready")

    @app.get("/v1/models", tags=["cerberank"], summary="The models and what has become of them")
    async def models() -> dict[str, list[dict[str, Any]]]:
        return {"models": [service.live.describe()]}

    @app.get("/info", tags=["text-embeddings-inference"], summary="The served model")
    async def tei_info() -> dict[str, Any]:
        if service.live.checkpoint is None:
            raise ServiceError(Kind.UNAVAILABLE, "the model is still loading", retry_after=2)
        return tei.info(service.live.checkpoint, service.settings)

    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        load = service.load()
        service.metrics.queued_tokens.set(load.queued_tokens)
        service.metrics.queued_seconds.set(load.queued_seconds)
        service.metrics.ready.set(service.live.state is State.READY)
        exposition, media_type = service.metrics.render(request.headers.get("accept", ""))
        return Response(exposition, media_type=media_type)


def _add_error_handlers(app: FastAPI, service: Service) -> None:
    dressers = {path: dialects[0].dress for path, dialects in by_path(DIALECTS).items()} | {"/info": tei.dress}

    async def answer(request: Request, error: Exception) -> Response:
        known = _as_service_error(error)
        service.metrics.errors.labels(known.kind.label).inc()
        request_id = _request_id(request)
        unforeseen = error if known.kind is Kind.INTERNAL and known is not error else None
        log_error(known, request_id, getattr(request.state, "trace_id", None), unforeseen)
        of_path = dressers.get(request.url.path, NATIVE.dress)
        status, body = getattr(request.state, "dress", of_path)(known, request_id)
        allow = (error.headers or {}) if isinstance(error, HTTPException) else {}
        headers = {**allow, **known.headers, "X-Request-Id": request_id}
        if known.kind is Kind.TOO_LARGE:
            headers["Connection"] = "close"  # the rest of the body is not read
        return Response(to_json(body), status, media_type="application/json", headers=headers)

    for kind in (ServiceError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)


def _as_service_error(error: Exception) -> ServiceError:
    """The error as a client may see it: never its internals."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, HTTPException) and error.status_code == Kind.METHOD_NOT_ALLOWED.value:
        return ServiceError(Kind.METHOD_NOT_ALLOWED, "this path does not answer to that method; see /docs")
    if isinstance(error, HTTPException) and error.status_code == Kind.NOT_FOUND.value:
        return ServiceError(Kind.NOT_FOUND, "there is no such path; see /docs")
    return ServiceError(Kind.INTERNAL, "an unexpected error; its details are in the service's log")


def _request_id(request: Request) -> str:
    """The caller's `X-Request-Id` when it is fit for a log line, else a fresh one."""
    known: str | None = getattr(request.state, "request_id", None)
    if known is None:
        given = request.headers.get("x-request-id", "")
        known = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        request.state.request_id = known
    return known
