"""The routes that do not rank: health, models, shadow comparison, `/info`, `/metrics` and the HTML pages."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel, JsonValue
from pydantic_core import to_json

from cerberank_service.dialects import tei, weaviate
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.openapi import describe_errors
from cerberank_service.service import Service
from cerberank_service.telemetry.series import QUEUED_SECONDS, QUEUED_TOKENS, READY
from cerberank_service.versions.describe import describe, list_names, unready_reason
from cerberank_service.versions.state import State


class Readiness(BaseModel):
    """The body of a readiness probe."""

    ready: bool
    state: str
    reason: str | None = None
    """The reason that no stable version is ready; absent while one is loading."""


class OpenAIModel(BaseModel):
    """A model in the format of OpenAI's API."""

    id: str
    object: Literal["model"] = "model"
    created: int
    """Unix seconds."""
    owned_by: str = "cerberank"


class ModelEntry(BaseModel):
    """A version and its state; the fields from `architecture` on are set only for a loaded version."""

    model: str | None = None
    version: str | None = None
    state: State
    reason: str | None = None
    labels: list[str] = []
    wanted: list[str] = []
    rollback: bool = False
    pinned: bool = False
    architecture: str | None = None
    stages: int | None = None
    exits: list[int] | None = None
    first_stage: dict[str, JsonValue] | None = None
    drop_schedule: list[float] | None = None
    lexical_ratio: float | None = None
    longer_lists: list[dict[str, JsonValue]] | None = None
    drop_minimum: int | None = None
    tuned_schedules: list[dict[str, JsonValue]] | None = None
    score: str | None = None
    calibration: dict[str, JsonValue] | None = None
    max_length: int | None = None
    question_length: int | None = None
    """The most tokens of a question that are read."""
    question_part: str | None = None
    """The part that is read of a longer one."""
    windows: str | None = None
    """The reading of texts that do not fit, where a request names none."""
    languages: list[str] | None = None
    context: bool | None = None
    instruction: bool | None = None
    backend: str | None = None
    backend_reason: str | None = None
    precision: str | None = None
    aliases: list[str] | None = None
    metrics: dict[str, float] | None = None
    source: str | None = None


class Limits(BaseModel):
    """The limits of one request; a client with more candidates sends several requests."""

    candidates: int
    """Limit of a question's candidates, and of the windows of all its candidates together."""
    body_bytes: int


class ModelList(BaseModel):
    """`data` has the names that a request may give as its model, in OpenAI's format; `models` has all versions."""

    object: Literal["list"] = "list"
    data: list[OpenAIModel]
    models: list[ModelEntry]
    limits: Limits


PROBES = {
    "/health/ready": "health",
    "/health": "text-embeddings-inference",
    "/ping": "sagemaker",
    "/.well-known/ready": "weaviate",
}
"""The readiness probes, each with its section of the OpenAPI document."""


def add_health(app: FastAPI, service: Service) -> None:
    """Add the liveness and readiness probes."""
    versions = service.versions

    @app.get("/health/live", tags=["health"], summary="Liveness: 503 when the process must be restarted")
    async def live() -> Response:
        broken = versions.snapshot.broken
        return Response(to_json({"live": not broken}), 503 if broken else 200, media_type="application/json")

    async def ready() -> Response:
        snapshot = versions.snapshot
        state, reason = snapshot.state, unready_reason(snapshot, service.settings)
        content = {"ready": state is State.READY, "state": state.value} | ({"reason": reason} if reason else {})
        status = 200 if state is State.READY else 503
        return Response(to_json(content), status, media_type="application/json")

    shapes: dict[int | str, dict[str, Any]] = {503: {"model": Readiness, "description": "Not ready."}}
    for path, tag in PROBES.items():
        app.add_api_route(
            path,
            ready,
            tags=[tag],
            summary="Readiness: 200 once the model reproduces its golden questions",
            response_model=Readiness,
            responses=shapes,
        )


def add_models(app: FastAPI, service: Service) -> None:
    """Add the routes that describe the models."""
    settings, versions = service.settings, service.versions

    @app.get(
        "/v1/models",
        tags=["cerberank", "openai"],
        summary="The models with their versions and states",
        response_model=ModelList,
    )
    async def models() -> Response:
        snapshot = versions.snapshot
        data = [OpenAIModel(id=name, created=created) for name, created in list_names(snapshot, settings).items()]
        limits = Limits(candidates=settings.max_candidates, body_bytes=settings.max_body_bytes)
        content = {"object": "list", "data": data, "models": describe(snapshot, settings), "limits": limits}
        return Response(to_json(content), media_type="application/json")

    @app.get(
        "/v1/models/{model}/shadow", tags=["cerberank"], summary="Comparison of the shadow version with the stable one"
    )
    async def compared(model: str) -> dict[str, Any]:
        if (figures := service.shadow.figures(model)) is None:
            raise ServiceError(Kind.NOT_FOUND, "this model has no stable and shadow version to compare")
        return {"model": model, **figures.describe()}

    # After the path above, which it would answer too: names of models contain slashes.
    @app.get("/v1/models/{model:path}", tags=["openai"], summary="One model, as OpenAI's API describes it")
    async def one_model(model: str) -> OpenAIModel:
        if (created := list_names(versions.snapshot, settings).get(model)) is None:
            raise ServiceError(Kind.NOT_FOUND, "no model of this name is served; see /v1/models")
        return OpenAIModel(id=model, created=created)

    @app.get(
        "/info",
        tags=["text-embeddings-inference"],
        summary="The served model",
        responses=describe_errors(tei.TeiError),
    )
    async def tei_info() -> dict[str, Any]:
        live = versions.find(None, "stable")
        return tei.info(live.checkpoint, live.precision, settings, live.engine.step_tokens)

    @app.get("/meta", tags=["weaviate"], summary="The served model", responses=describe_errors(weaviate.WeaviateError))
    async def weaviate_meta() -> dict[str, Any]:
        return weaviate.meta(versions.find(None, "stable").checkpoint)


OPEN_METRICS = "application/openmetrics-text"
"""The format with exemplars, which is sent to clients that accept it."""


class Exposition:
    """The metrics as bytes, cached for a short time: rendering blocks the event loop, and clients need no key."""

    def __init__(self, service: Service, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """An exposition is cached for `seconds`."""
        self._service = service
        self._seconds = seconds
        self._clock = clock
        self._cached: dict[str, tuple[float, bytes]] = {}
        """The time and the bytes of the last exposition in each format."""

    def __call__(self, accept: str) -> tuple[bytes, str]:
        """The exposition and its media type, for an `Accept` header."""
        # Only two formats are offered, because every version that a header can name would be rendered and cached.
        encode, media_type = choose_encoder(f"{OPEN_METRICS}; version=1.0.0" if OPEN_METRICS in accept else "")
        cached = self._cached.get(media_type)
        now = self._clock()
        if cached is None or now - cached[0] >= self._seconds:
            service, metrics = self._service, self._service.metrics
            service.access.check()
            load = service.load()
            metrics[QUEUED_TOKENS].set(load.queued_tokens)
            metrics[QUEUED_SECONDS].set(load.queued_seconds)
            metrics[READY].set(service.versions.snapshot.state is State.READY)
            cached = self._cached[media_type] = (now, encode(metrics.registry))
        return cached[1], media_type


def add_metrics(app: FastAPI, exposition: Exposition) -> None:
    """Add `/metrics` to `app`."""

    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        content, media_type = exposition(request.headers.get("accept", ""))
        return Response(content, media_type=media_type)


STATIC = Path(__file__).parent / "static"
PAGES = {"/": "playground.html", "/status": "status.html", "/docs": "docs.html"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Assets(StaticFiles):
    """Scripts and styles, with the pages' headers, so that browsers load the files of a new release at once."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        """The response of `StaticFiles` with the pages' headers."""
        response = super().file_response(*args, **options)
        response.headers.update(HEADERS)
        return response


def add_pages(app: FastAPI) -> None:
    """Add the playground, the status page and Swagger UI (`/docs`). They load nothing from other hosts."""
    for path, name in PAGES.items():
        app.add_api_route(path, _page(name), methods=["GET"], include_in_schema=False, name=name)
    app.mount("/assets/swagger", Assets(packages=[("fastapi_swagger", "resources")]), name="swagger")
    app.mount("/assets", Assets(directory=STATIC), name="assets")


def _page(name: str) -> Callable[[], Awaitable[FileResponse]]:
    async def page() -> FileResponse:
        return FileResponse(STATIC / name, headers=HEADERS)

    return page
