"""OpenAPI for bodies that worker threads parse, which FastAPI therefore does not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

COMPONENT = "#/components/schemas/{model}"


def describe_body(*models: type[BaseModel]) -> dict[str, Any]:
    """The `requestBody` of an operation that reads any of `models`."""
    references = [{"$ref": COMPONENT.format(model=model.__name__)} for model in models]
    schema = references[0] if len(references) == 1 else {"anyOf": references}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def with_components(app: FastAPI, models: Sequence[type[BaseModel]]) -> None:
    """Add the schemas of `models` to what `app.openapi()` gives."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        document = original()
        _, definitions = models_json_schema([(model, "validation") for model in models], ref_template=COMPONENT)
        document.setdefault("components", {}).setdefault("schemas", {}).update(definitions["$defs"])
        return document

    app.openapi = openapi  # type: ignore[method-assign]
