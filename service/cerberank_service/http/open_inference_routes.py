"""The Open Inference Protocol's routes: the server's and the model's metadata, their probes, and `infer`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response

from cerberank_models import __version__
from cerberank_service.dialects.dialect import ErrorFormat
from cerberank_service.dialects.open_inference import (
    INFER,
    INPUTS,
    MODEL_PATHS,
    OUTPUTS,
    InferAnswer,
    InferError,
    InferRequest,
    format_error,
)
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.body import read_number
from cerberank_service.http.openapi import describe_body, describe_errors, describe_path
from cerberank_service.http.rank_route import RankRoute
from cerberank_service.service import Service
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.state import State

SERVER_PATHS = ("/v2", "/v2/health/live", "/v2/health/ready")
PATHS = (*SERVER_PATHS, *(f"{path}{rest}" for path in MODEL_PATHS for rest in ("", "/ready", "/config", "/infer")))
ERROR_FORMATS: dict[str, ErrorFormat] = dict.fromkeys((*PATHS, "/v2/models/", "/v2/repository/"), format_error)
"""Error formats by path. They include unknown paths of Triton's protocol, whose client expects a text in `error`."""
JSON_LENGTH = "inference-header-content-length"
"""Triton's header with the length of the body's JSON; binary tensors follow the JSON."""


def add(app: FastAPI, service: Service, rank: RankRoute) -> None:
    """Add the protocol's routes to `app`; `rank` answers `infer`."""
    settings, versions = service.settings, service.versions

    async def server_live() -> dict[str, bool]:
        if versions.snapshot.broken:
            raise ServiceError(Kind.UNAVAILABLE, "the model's thread has failed; this process must be started anew")
        return {"live": True}

    async def server_ready() -> dict[str, bool]:
        _check_ready(versions)
        return {"ready": True}

    async def server() -> dict[str, Any]:
        return {"name": "cerberank", "version": __version__, "extensions": []}

    # The version that a path names; its stable version if it names only the model.

    def backend_of(live: LiveVersion) -> str:
        return settings.form(live.checkpoint.manifest.files).backend

    async def model_ready(request: Request) -> dict[str, Any]:
        return {"name": _named_version(request, versions).reference.model, "ready": True}

    async def model_metadata(request: Request) -> dict[str, Any]:
        live = _named_version(request, versions)
        ready = versions.snapshot.model(live.reference.model).ready
        return describe(live.reference.model, ready, backend_of(live))

    async def model_config(request: Request) -> dict[str, Any]:
        live = _named_version(request, versions)
        return describe_config(live.reference.model, backend_of(live))

    async def infer(request: Request) -> Response:
        return await rank(request, (INFER,), json_bytes=read_number(request.headers.get(JSON_LENGTH)))

    # FastAPI declares no parameter from these handlers, as they take the request: `describe_path` does.
    errors = describe_errors(InferError)

    def get(path: str, handler: Callable[..., Awaitable[Any]], summary: str) -> None:
        extra = describe_path(path)
        app.add_api_route(
            path, handler, methods=["GET"], tags=[INFER.tag], summary=summary, responses=errors, openapi_extra=extra
        )

    get("/v2", server, "The server's name and version")
    get("/v2/health/live", server_live, "Liveness, like /health/live")
    get("/v2/health/ready", server_ready, "Readiness, like /health/ready")
    for path in MODEL_PATHS:
        get(path, model_metadata, "The model's inputs and outputs")
        get(f"{path}/ready", model_ready, "Readiness of the model")
        get(f"{path}/config", model_config, "The model's configuration in Triton's format")
        app.add_api_route(
            f"{path}/infer",
            infer,
            methods=["POST"],
            tags=[INFER.tag],
            summary="Rank candidates for a question",
            response_model=InferAnswer,
            responses=errors,
            openapi_extra=describe_body(InferRequest, keyed=settings.keys_file is not None) | describe_path(path),
        )


def describe(model: str, versions: Sequence[str], backend: str) -> dict[str, Any]:
    """The model's metadata."""
    return {
        "name": model,
        "versions": list(versions),
        "platform": f"cerberank_{backend}",
        "inputs": [
            {"name": name, "datatype": "BYTES", "shape": shape} for name, shape in zip(INPUTS, ([1], [-1]), strict=True)
        ],
        "outputs": [{"name": name, "datatype": datatype, "shape": [-1]} for name, datatype in OUTPUTS.items()],
    }


def describe_config(model: str, backend: str) -> dict[str, Any]:
    """The model's configuration in Triton's format, without batching, because a request has one question."""
    return {
        "name": model,
        "platform": f"cerberank_{backend}",
        "max_batch_size": 0,
        "input": [
            {"name": name, "data_type": "TYPE_STRING", "dims": dims}
            for name, dims in zip(INPUTS, ([1], [-1]), strict=True)
        ],
        "output": [{"name": name, "data_type": f"TYPE_{datatype}", "dims": [-1]} for name, datatype in OUTPUTS.items()],
    }


def _check_ready(versions: VersionRegistry) -> None:
    """Raises ServiceError (503) unless every stable version is ready."""
    if (state := versions.snapshot.state) is not State.READY:
        raise ServiceError(Kind.UNAVAILABLE, f"the model is {state.value}", retry_after=2)


def _named_version(request: Request, versions: VersionRegistry) -> LiveVersion:
    """The version that the path names. Raises ServiceError (404 or 503)."""
    _check_ready(versions)
    model, version = request.path_params["model"], request.path_params.get("version")
    return versions.find(model, version or (None if "@" in model else "stable"))
