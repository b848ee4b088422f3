"""The routes that do not rank: health, models, shadow comparison, text-embeddings-inference's `/info`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response
from pydantic import BaseModel
from pydantic_core import to_json

from cerberank_service.dialects import tei
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.openapi import describe_errors
from cerberank_service.rollout.shadow import Shadow
from cerberank_service.rollout.shadow_figures import PromotionRule, judge
from cerberank_service.settings import Settings
from cerberank_service.versions.describe import describe
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.state import State


class Readiness(BaseModel):
    """The body of a readiness probe."""

    ready: bool
    state: str


def add_health(app: FastAPI, versions: VersionRegistry) -> None:
    """Add the liveness and readiness probes."""

    @app.get("/health/live", tags=["health"], summary="503 when only a new process helps")
    async def live() -> Response:
        broken = versions.snapshot.broken
        return Response(to_json({"live": not broken}), 503 if broken else 200, media_type="application/json")

    async def ready() -> Response:
        state = versions.snapshot.state
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


def add_models(
    app: FastAPI, versions: VersionRegistry, shadow: Shadow, promotion: PromotionRule, settings: Settings
) -> None:
    """Add the routes that describe the models."""

    @app.get("/v1/models", tags=["cerberank"], summary="The models and what has become of them")
    async def models() -> dict[str, list[dict[str, Any]]]:
        return {"models": describe(versions.snapshot, settings)}

    @app.get(
        "/v1/models/{model}/shadow", tags=["cerberank"], summary="How the shadow version compares to the stable one"
    )
    async def compared(model: str) -> dict[str, Any]:
        if (figures := shadow.figures(model)) is None:
            raise ServiceError(Kind.NOT_FOUND, "this model has no stable and shadow version to compare")
        verdict, why = judge(figures, promotion)
        return {"model": model, **figures.describe(), "verdict": verdict.value, "reason": why}

    @app.get(
        "/info",
        tags=["text-embeddings-inference"],
        summary="The served model",
        responses=describe_errors(tei.TeiError),
    )
    async def tei_info() -> dict[str, Any]:
        live = versions.find(None, "stable")
        return tei.info(live.checkpoint, live.precision, settings, live.engine.step_tokens)
