"""Bodies with far too much of something, against the real process; `make fuzz` asks with all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.fuzz import OVERSIZED_BYTES, serving
from tools.oversized import around, binary_tensors, oversized, violations

A = {"$ref": "#/components/schemas/A"}
DOCUMENT: dict[str, Any] = {
    "paths": {
        "/a": {"post": {"requestBody": {"content": {"application/json": {"schema": A}}}}},
        "/b": {"get": {}},
    },
    "components": {
        "schemas": {
            "A": {
                "title": "A",
                "type": "object",
                "required": ["text", "parts"],
                "additionalProperties": False,
                "properties": {
                    "text": {"type": "string"},
                    "parts": {"type": "array", "items": {"anyOf": [A, {"type": "null"}]}},
                },
            }
        }
    },
}
VALUES: dict[str, Any] = {"text": "t", "parts": []}


def test_every_place_of_a_document_is_filled() -> None:
    """The body, its fields and its lists' elements, also within a reference and a union; a type within itself once."""
    bodies = {each.name: each for each in oversized(DOCUMENT, VALUES, 100)}
    places = {each.place for each in bodies.values()}
    assert places == {(), ("text",), ("parts",), ("parts", 0)}
    assert not bodies["/a text: a string"].must_refuse
    assert bodies["/a parts: an array of 0"].must_refuse
    assert bodies["/a body: unknown keys"].must_refuse
    assert all(each.must_refuse for each in bodies.values() if each.kind == "nesting")
    within = around(DOCUMENT, A, ("parts", 0, "text"), b"1", VALUES)
    assert json.loads(within) == {"parts": [{"text": 1, "parts": []}], "text": "t"}


def test_a_long_list_of_wrong_elements_costs_little(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """At every place of every dialect that takes a list: refused, with a short answer, at a bounded price."""
    with serving(tiny_checkpoint, tmp_path) as (service, names):
        pid = service.process.pid
        lists = violations(
            service.url,
            pid,
            names,
            OVERSIZED_BYTES,
            lambda *made: (each for each in oversized(*made) if each.kind == "an array of []"),
        )
        assert lists == []


def test_a_binary_tensor_of_a_million_texts_costs_little(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """In a body of the largest size each empty text takes four bytes, and is refused without being read."""
    with serving(tiny_checkpoint, tmp_path) as (service, names):
        pid = service.process.pid
        assert (
            violations(service.url, pid, names, 4_160_000, lambda document, _, size: binary_tensors(document, size))
            == []
        )
