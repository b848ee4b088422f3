"""Bodies with far too much of something, against the real process; `make fuzz` asks with all of them."""

from __future__ import annotations

import json
from typing import Any

from tools.oversized import OVERSIZED_BYTES, around, binary_tensors, oversized, violations
from tools.process import Process

NAMES = {"model": "random-tiny", "version": "1"}
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


def test_a_long_list_of_wrong_elements_costs_little(shared_service: Process) -> None:
    """At every place of every dialect that takes a list: refused, with a short answer, at a bounded price."""
    pid = shared_service.process.pid
    broken = violations(
        shared_service.url, pid, NAMES, OVERSIZED_BYTES, lambda *arguments: oversized(*arguments, only="an array of []")
    )
    assert broken == []


def test_a_binary_tensor_of_a_million_texts_costs_little(shared_service: Process) -> None:
    """In a body of the largest size each empty text takes four bytes, and is refused without being read."""
    pid = shared_service.process.pid
    broken = violations(
        shared_service.url, pid, NAMES, 4_160_000, lambda document, _, size: binary_tensors(document, size)
    )
    assert broken == []
