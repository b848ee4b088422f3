"""Parts of the OpenAPI document that FastAPI cannot derive: bodies that workers parse, error formats, API keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from fastapi import FastAPI, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from pydantic_core import to_json

COMPONENT = "#/components/schemas/{model}"
KEY = "key"


def operation_id(route: APIRoute) -> str:
    """The name of an operation in generated clients: the words of its path, without the version on our own paths.

    `/v1/rank` is `rank`, `/v1/rank/batch` is `rank_batch`, and Cohere's `/v2/rerank` is `v2_rerank`.
    """
    own = "cerberank" in route.tags
    return "_".join(re.findall(r"\w+", route.path_format)).removeprefix("v1_" if own else "")


def describe_body(*models: type[BaseModel], keyed: bool) -> dict[str, Any]:
    """The `requestBody` of an operation whose body is one of `models`, and its API key, which `keyed` services need."""
    security: list[dict[str, list[str]]] = [{KEY: []}] if keyed else [{}, {KEY: []}]
    return {"requestBody": {"required": True, "content": _content(models)}, "security": security}


def describe_path(path: str) -> dict[str, Any]:
    """The `parameters` of a path, for operations whose handlers read them from the request; {} if it has none."""
    names = re.findall(r"{(\w+)(?::path)?}", path)
    described = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    return {"parameters": described} if described else {}


def describe_errors(*models: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The error `responses` of an operation, whose bodies are one of `models`.

    The models are given as references. FastAPI would otherwise build a validator for every model, route and status,
    which took half of the time of creating the app.
    """
    content = _content(tuple(dict.fromkeys(models)))
    return {
        "4XX": {"content": content, "description": "The request is invalid or refused."},
        "5XX": {"content": content, "description": "The service cannot answer the request now."},
    }


def _content(models: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """The `content` of a body that is JSON of one of `models`."""
    references = [{"$ref": COMPONENT.format(model=model.__name__)} for model in models]
    return {"application/json": {"schema": references[0] if len(references) == 1 else {"anyOf": references}}}


def with_components(app: FastAPI, bodies: Sequence[type[BaseModel]], errors: Sequence[type[BaseModel]]) -> None:
    """Add what operations refer to: the schemas of request bodies and errors, and the security scheme."""
    original = app.openapi
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in bodies]
    models += [(model, "serialization") for model in errors]

    @cache
    def openapi() -> dict[str, Any]:
        document = original()
        _, definitions = models_json_schema(models, ref_template=COMPONENT)
        components = document.setdefault("components", {})
        components.setdefault("schemas", {}).update(definitions["$defs"])
        _drop_defaults(components["schemas"])
        text = "An API key, which the service needs if CERBERANK_KEYS_FILE is set."
        components["securitySchemes"] = {KEY: {"type": "http", "scheme": "bearer", "description": text}}
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _drop_defaults(schema: Any) -> None:
    """Remove the defaults of fields: generators such as openapi-typescript take such a field as one of every body."""
    if isinstance(schema, dict):
        for field in schema.get("properties", {}).values():
            field.pop("default", None)
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _drop_defaults(part)


def add_document(app: FastAPI) -> None:
    """Add `/openapi.json`. Its bytes are cached: rendering blocks the loop for 15 ms, and clients need no key."""

    @cache
    def content() -> bytes:
        return to_json(app.openapi())

    @app.get("/openapi.json", include_in_schema=False)
    async def document() -> Response:
        return Response(content(), media_type="application/json")
