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

from cerberank_models.store import open_store
from cerberank_service.body import read_body
from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.deadlines import HEADER, read_header
from cerberank_service.describe import describe
from cerberank_service.dialects import DIALECTS, NATIVE, Dialect, tei
from cerberank_service.dialects.open_inference import InferRequest
from cerberank_service.dialects.shared_paths import by_path, spoken
from cerberank_service.disconnect import unless_gone
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.labels import Labels
from cerberank_service.lifecycle_metrics import LabelCollector
from cerberank_service.live import Loader, load
from cerberank_service.logs import log_answer, log_error
from cerberank_service.metrics import Metrics
from cerberank_service.open_inference_routes import add_open_inference
from cerberank_service.openapi import describe_body, with_components
from cerberank_service.pages import add_pages
from cerberank_service.ranking import Ranking
from cerberank_service.response_headers import LOAD_FORMAT, Load, load_report, server_timing
from cerberank_service.rules import Rules
from cerberank_service.served import ServedModels, State
from cerberank_service.settings import Settings
from cerberank_service.shadow import Shadow
from cerberank_service.shadow_figures import judge
from cerberank_service.single import SingleCheckpoint
from cerberank_service.tracing import RequestSpan, Tracing
from cerberank_service.watcher import Watcher
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
        self.served = ServedModels(settings)
        self.metrics.registry.register(LabelCollector(self.served.snapshot))
        self.shadow = Shadow(settings, self.served, self.metrics)
        store = open_store(settings.store) if settings.store else None
        self.source: Watcher | SingleCheckpoint = (
            SingleCheckpoint(settings, self.served, self.metrics, loader)
            if store is None
            else Watcher(store, self.served, settings, self.metrics, loader)
        )
        self.labels = Labels(store, self.served, self.source.wake)
        self.rules = Rules(settings, self.served, self.shadow, self.labels)
        self.source.after_turn = self.rules.apply
        self.ranking = Ranking(settings, self.served, self.shadow, self.workers, self.metrics)
        self._stopping = False

    def start(self) -> None:
        """Begin to load, or to follow the store."""
        self.source.start()
        self.shadow.start()

    def begin_shutdown(self) -> None:
        """Refuse new requests; those being handled may still take the drain time. Called on the event loop."""
        if not self._stopping:
            self._stopping = True
            self.served.refuse()
            asyncio.get_running_loop().call_later(self.settings.drain_seconds, self.served.stop)

    def load(self) -> Load:
        """What is accepted and not answered, now."""
        engines = [live.engine for live in self.served.live()]
        return Load(
            queued_tokens=sum(engine.queued_tokens for engine in engines),
            queued_seconds=sum(engine.queued_seconds for engine in engines),
            requests_in_flight=self.metrics.count_in_flight(),
        )

    async def end_shutdown(self) -> None:
        """Nobody waits any more: end the threads."""
        self.served.stop()
        self.shadow.stop()
        await self.workers.run(self.source.stop)
        await self.workers.run(partial(self.served.join, JOIN_SECONDS))
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
    add_open_inference(app, service.served, service.settings, partial(_rank, service))
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
        request.state.question = call.question if service.settings.log_questions else None
        return call, (dialect, options)

    timeout = read_header(request.headers.get(HEADER))
    with service.metrics.in_flight.track_inprogress():
        sent = await read_body(request, service.settings.max_body_bytes)
        content = await unless_gone(
            request, service.ranking.rank(sent, parse, _to_bytes, request_id, timeout_ms=timeout)
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

    app.add_api_route("/health/ready", ready, tags=["health"], summary="200 once golden questions were reproduced")
    app.add_api_route("/health", ready, tags=["text-embeddings-inference"], summary="As /health/ready")

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

    @app.get("/info", tags=["text-embeddings-inference"], summary="The served model")
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
