"""The Open Inference Protocol's routes: the server's and the model's metadata, their probes, and `infer`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import metadata
from typing import Any

from fastapi import FastAPI, Request, Response

from cerberank_models.checkpoint import Checkpoint
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.open_inference import INPUTS, OUTPUTS, InferAnswer, InferRequest, dress, parse, render
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.live import LiveModel, State
from cerberank_service.openapi import describe_body
from cerberank_service.prepare import check_model
from cerberank_service.settings import Settings

Rank = Callable[[Request, Sequence[Dialect]], Awaitable[Response]]
TAG = "open-inference"
MODEL_PATHS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
JSON_LENGTH = "inference-header-content-length"
"""Triton's header: how much of the body is JSON; binary tensors follow."""


def add_open_inference(app: FastAPI, live: LiveModel, settings: Settings, rank: Rank) -> None:
    """Add the routes to `app`; `rank` answers a request that is in one of some dialects."""

    async def server_live() -> dict[str, bool]:
        return {"live": True}

    async def server_ready(request: Request) -> dict[str, bool]:
        _ready(request, live)
        return {"ready": True}

    async def server() -> dict[str, Any]:
        return {"name": "cerberank", "version": metadata.version("cerberank"), "extensions": []}

    async def model_ready(request: Request) -> dict[str, Any]:
        checkpoint = _asked(request, live, settings)
        return {"name": checkpoint.config.name, "ready": True}

    async def model_metadata(request: Request) -> dict[str, Any]:
        return describe(_asked(request, live, settings), settings)

    async def infer(request: Request) -> Response:
        return await rank(request, (_infer_dialect(request),))

    def get(path: str, handler: Callable[..., Awaitable[Any]], summary: str) -> None:
        app.add_api_route(path, handler, methods=["GET"], tags=[TAG], summary=summary)

    get("/v2", server, "The server's name and version")
    get("/v2/health/live", server_live, "Whether the process runs")
    get("/v2/health/ready", server_ready, "As /health/ready")
    for path in MODEL_PATHS:
        get(path, model_metadata, "The model's inputs and outputs")
        get(f"{path}/ready", model_ready, "Whether the model is ready")
        app.add_api_route(
            f"{path}/infer",
            infer,
            methods=["POST"],
            tags=[TAG],
            summary="Rank candidates for a question",
            response_model=InferAnswer,
            openapi_extra=describe_body(InferRequest),
        )


def describe(checkpoint: Checkpoint, settings: Settings) -> dict[str, Any]:
    """The model's metadata."""
    return {
        "name": checkpoint.config.name,
        "versions": [checkpoint.manifest.version],
        "platform": f"cerberank_{settings.backend}",
        "inputs": [
            {"name": name, "datatype": "BYTES", "shape": shape} for name, shape in zip(INPUTS, ([1], [-1]), strict=True)
        ],
        "outputs": [{"name": name, "datatype": datatype, "shape": [-1]} for name, datatype in OUTPUTS.items()],
    }


def _infer_dialect(request: Request) -> Dialect:
    """The request's own: its path and headers are part of what is parsed."""
    length = request.headers.get(JSON_LENGTH)
    return Dialect(
        paths=(request.url.path,),
        summary="infer",
        tag=TAG,
        request=InferRequest,
        response=InferAnswer,
        parse=partial(
            parse,
            model=request.path_params["model"],
            version=request.path_params.get("version"),
            json_length=int(length) if length is not None and length.isdecimal() else None,
        ),
        render=render,
        dress=dress,
    )


def _ready(request: Request, live: LiveModel) -> Checkpoint:
    """The served checkpoint. Raises ServiceError (503), to be dressed as this protocol has it."""
    request.state.dress = dress
    if live.state is not State.READY or live.checkpoint is None:
        raise ServiceError(Kind.UNAVAILABLE, f"the model is {live.state.value}", retry_after=2)
    return live.checkpoint


def _asked(request: Request, live: LiveModel, settings: Settings) -> Checkpoint:
    """The served checkpoint, if the path names it. Raises ServiceError (404 or 503)."""
    checkpoint = _ready(request, live)
    check_model(request.path_params["model"], request.path_params.get("version"), checkpoint, settings)
    return checkpoint
