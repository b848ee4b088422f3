"""The routes. Nothing is decided here: bodies go to a dialect, calls to `Ranking`, errors to their clothes."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Union

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
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
from cerberank_service.live import Loader, load
from cerberank_service.metrics import Metrics
from cerberank_service.open_inference_routes import add_open_inference
from cerberank_service.openapi import describe_body, with_components
from cerberank_service.pages import add_pages
from cerberank_service.ranking import Ranking
from cerberank_service.rules import Rules
from cerberank_service.served import ServedModels, State
from cerberank_service.settings import Settings
from cerberank_service.shadow import Shadow
from cerberank_service.shadow_figures import judge
from cerberank_service.single import SingleCheckpoint
from cerberank_service.watcher import Watcher
from cerberank_service.workers import Workers

logger = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
JOIN_SECONDS = 5.0
"""For the step that is running; a model that hangs longer than that dies with the process."""
CLIENT_GONE = 499
"""Nobody reads it; what proxies write into their logs."""
Handler = Callable[[Request], Awaitable[Response]]


class Service:
    """What one app owns; made by `create_app`, found at `app.state.service`."""

    def __init__(self, settings: Settings, loader: Loader) -> None:
        """Nothing runs before `start`."""
        self.settings = settings
        self.metrics = Metrics()
        self.workers = Workers(settings.encode_workers)
        self.served = ServedModels(settings)
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

    async def end_shutdown(self) -> None:
        """Nobody waits any more: end the threads."""
        self.served.stop()
        self.shadow.stop()
        await self.workers.run(self.source.stop)
        await self.workers.run(partial(self.served.join, JOIN_SECONDS))
        self.workers.close()


def create_app(settings: Settings, loader: Loader = load) -> FastAPI:
    """The application; the model loads when it starts."""
    service = Service(settings, loader)

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

    def parse(body: bytes) -> tuple[RankCall, tuple[Dialect, Any]]:
        dialect = spoken(dialects, body)
        request.state.dress = dialect.dress
        call, options = dialect.parse(body)
        return call, (dialect, options)

    timeout = read_header(request.headers.get(HEADER))
    with service.metrics.in_flight.track_inprogress():
        sent = await read_body(request, service.settings.max_body_bytes)
        content = await unless_gone(
            request, service.ranking.rank(sent, parse, _to_bytes, request_id, timeout_ms=timeout)
        )
    if content is None:
        return Response(status_code=CLIENT_GONE)
    body, served_by = content
    headers = {"X-Request-Id": request_id, "X-Model-Version": served_by}
    return Response(body, media_type="application/json", headers=headers)


def _to_bytes(answer: RankAnswer, spoken_as: tuple[Dialect, Any]) -> tuple[bytes, str]:
    """Rendered and serialised in the worker thread: an answer may hold 10,000 places. Who answered goes beside it."""
    dialect, options = spoken_as
    return to_json(dialect.render(answer, options)), f"{answer.model}@{answer.version}"


def _add_plain_routes(app: FastAPI, service: Service) -> None:
    @app.get("/health/live", tags=["health"], summary="Whether the process runs")
    async def live() -> dict[str, bool]:
        return {"live": True}

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
    async def metrics() -> Response:
        engines = [live.engine for live in service.served.live()]
        service.metrics.queued_tokens.set(sum(engine.queued_tokens for engine in engines))
        service.metrics.queued_seconds.set(sum(engine.queued_seconds for engine in engines))
        service.metrics.ready.set(service.served.state is State.READY)
        return Response(service.metrics.render(), media_type=CONTENT_TYPE_LATEST)


def _add_error_handlers(app: FastAPI, service: Service) -> None:
    dressers = {path: dialects[0].dress for path, dialects in by_path(DIALECTS).items()} | {"/info": tei.dress}

    async def answer(request: Request, error: Exception) -> Response:
        known = _as_service_error(error)
        service.metrics.errors.labels(known.kind.label).inc()
        request_id = _request_id(request)
        if known.kind is Kind.INTERNAL and known is not error:
            logger.error("request %s failed", request_id, exc_info=error)
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
