"""The routes that do not rank: health, models, shadow comparison, text-embeddings-inference's `/info`."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI, Response
from pydantic import BaseModel, JsonValue
from pydantic_core import to_json

from cerberank_service.dialects import tei
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.openapi import describe_errors
from cerberank_service.rollout.shadow import Shadow
from cerberank_service.settings import Settings
from cerberank_service.versions.describe import describe, list_names, unready_reason
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.state import State


class Readiness(BaseModel):
    """The body of a readiness probe."""

    ready: bool
    state: str
    reason: str | None = None
    """Why no stable version serves, where there is another reason than that it is loading."""


class OpenAIModel(BaseModel):
    """A model as OpenAI's API describes one."""

    id: str
    object: Literal["model"] = "model"
    created: int
    """Unix seconds."""
    owned_by: str = "cerberank"


class ModelEntry(BaseModel):
    """A version, and what has become of it; the facts from `architecture` on are those of a loaded one."""

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
    drop_minimum: int | None = None
    tuned_schedules: list[dict[str, JsonValue]] | None = None
    max_length: int | None = None
    context: bool | None = None
    backend: str | None = None
    precision: str | None = None
    aliases: list[str] | None = None
    metrics: dict[str, float] | None = None
    source: str | None = None


class ModelList(BaseModel):
    """The names that a request may give as its model, in OpenAI's shape, and every version of every model."""

    object: Literal["list"] = "list"
    data: list[OpenAIModel]
    models: list[ModelEntry]


def add_health(app: FastAPI, versions: VersionRegistry, settings: Settings) -> None:
    """Add the liveness and readiness probes."""

    @app.get("/health/live", tags=["health"], summary="503 when only a new process helps")
    async def live() -> Response:
        broken = versions.snapshot.broken
        return Response(to_json({"live": not broken}), 503 if broken else 200, media_type="application/json")

    async def ready() -> Response:
        snapshot = versions.snapshot
        state, reason = snapshot.state, unready_reason(snapshot, settings)
        content = {"ready": state is State.READY, "state": state.value} | ({"reason": reason} if reason else {})
        status = 200 if state is State.READY else 503
        return Response(to_json(content), status, media_type="application/json")

    shapes: dict[int | str, dict[str, Any]] = {503: {"model": Readiness, "description": "It takes no questions."}}
    for path, tag in (("/health/ready", "health"), ("/health", "text-embeddings-inference"), ("/ping", "sagemaker")):
        app.add_api_route(
            path,
            ready,
            tags=[tag],
            summary="200 once golden questions were reproduced",
            response_model=Readiness,
            responses=shapes,
        )


def add_models(app: FastAPI, versions: VersionRegistry, shadow: Shadow, settings: Settings) -> None:
    """Add the routes that describe the models."""

    @app.get(
        "/v1/models",
        tags=["cerberank", "openai"],
        summary="The models and what has become of them",
        response_model=ModelList,
    )
    async def models() -> Response:
        snapshot = versions.snapshot
        data = [OpenAIModel(id=name, created=created) for name, created in list_names(snapshot, settings).items()]
        content = {"object": "list", "data": data, "models": describe(snapshot, settings)}
        return Response(to_json(content), media_type="application/json")

    @app.get(
        "/v1/models/{model}/shadow", tags=["cerberank"], summary="How the shadow version compares to the stable one"
    )
    async def compared(model: str) -> dict[str, Any]:
        if (figures := shadow.figures(model)) is None:
            raise ServiceError(Kind.NOT_FOUND, "this model has no stable and shadow version to compare")
        return {"model": model, **figures.describe()}

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
