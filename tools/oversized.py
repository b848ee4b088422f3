"""Bodies with far too much of something, at every place that the OpenAPI document describes.

Their kinds are

- too many wrong elements in every array;
- too long a text for every string;
- too many unknown keys in every object;
- too deep nesting at every place;
- too many texts in binary tensors, for every path that accepts them.

The cost of each body is compared with that of a valid body of the same size. It is the processor time of the service,
because wall time would include the machine's other work.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs

MOST_RATIO = 10.0
"""Limit of an oversized body's processor time divided by that of a valid body of the same size."""
SPARE_SECONDS = 0.1
"""Processor seconds allowed in addition, for the clock's resolution and other work of the service."""
MOST_ANSWER_BYTES = 16 * 1024
OVERSIZED_BYTES = 390_000
BATCH = "/v1/rank/batch"
Schema = dict[str, Any]
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Oversized:
    """One body for one path."""

    path: str
    place: Place
    kind: str
    body: bytes
    must_refuse: bool
    """True if the document forbids the body; otherwise the service may accept or refuse it."""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name for a report."""
        return f"{self.path} {'.'.join(map(str, self.place)) or 'body'}: {self.kind}"


def oversized(document: Schema, values: Mapping[str, Any], size: int, only: str = "") -> Iterator[Oversized]:
    """All oversized bodies of about `size` bytes, or those of one kind.

    `values` are valid values for the other fields, by name.
    """
    deep = b"[" * (size // 2) + b"]" * (size // 2)
    for path, operations in document["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        validator = jsonschema_rs.validator_for({**content["schema"], "components": document["components"]})
        for place, schema in places(document, content["schema"]):
            types = {each.get("type") for each in alternatives(document, schema)}
            bodies = [("nesting", deep)]
            if "array" in types:
                for wrong in (b"{}", b'"x"', b"0", b"null", b"[]"):
                    array = b"[" + b",".join([wrong] * (size // (len(wrong) + 1))) + b"]"
                    bodies.append((f"an array of {wrong.decode()}", array))
            if "string" in types:
                bodies.append(("a string", b'"%s"' % (b"a" * size)))
            if "object" in types:
                keys = b",".join(b'"k%d":0' % number for number in range(size // 11))
                bodies.append(("unknown keys", b"{" + keys + b"}"))
            for kind, text in bodies:
                if only and kind != only:
                    continue
                body = around(document, content["schema"], place, text, values)
                yield Oversized(path, place, kind, body, kind == "nesting" or not validator.is_valid(json.loads(body)))


def binary_tensors(document: Schema, size: int) -> Iterator[Oversized]:
    """A body of about `size` bytes of empty texts in Triton's binary form, for every path of `infer`."""
    texts = size // 4
    packed = struct.pack("<I1s", 1, b"q") + bytes(4 * texts)
    inputs = [
        {"name": name, "shape": [count], "datatype": "BYTES", "parameters": {"binary_data_size": taken}}
        for name, count, taken in (("question", 1, 5), ("candidates", texts, 4 * texts))
    ]
    header = json.dumps({"inputs": inputs}).encode()
    headers = {"Inference-Header-Content-Length": str(len(header))}
    for path in document["paths"]:
        if path.endswith("/infer"):
            yield Oversized(path, ("inputs",), "a binary tensor", header + packed, must_refuse=True, headers=headers)


def places(
    document: Schema, schema: Schema, place: Place = (), seen: tuple[str, ...] = ()
) -> Iterator[tuple[Place, Schema]]:
    """Every place of a body, including the body itself, with its schema. Recursive types are followed once."""
    yield place, schema
    for each in alternatives(document, schema):
        title = str(each.get("title", ""))
        if title and title in seen:
            continue
        inner = (*seen, title) if "properties" in each else seen
        for name, child in each.get("properties", {}).items():
            yield from places(document, child, (*place, name), inner)
        if isinstance(each.get("items"), dict):
            yield from places(document, each["items"], (*place, 0), inner)


def alternatives(document: Schema, schema: Schema) -> list[Schema]:
    """The alternatives that a schema allows, with references resolved."""
    if "$ref" in schema:
        target: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return alternatives(document, target)
    several = [each for name in ("anyOf", "oneOf", "allOf") for each in schema.get(name, ())]
    return [inner for each in several for inner in alternatives(document, each)] if several else [schema]


def around(document: Schema, schema: Schema, place: Place, content: bytes, values: Mapping[str, Any]) -> bytes:
    """A body with `content` at `place`, and with the required fields of the objects around it."""
    if not place:
        return content
    step, rest = place[0], place[1:]
    for each in alternatives(document, schema):
        children = {0: each["items"]} if isinstance(each.get("items"), dict) else each.get("properties", {})
        if step not in children:
            continue
        try:
            inner = around(document, children[step], rest, content, values)
        except KeyError:  # the place belongs to another dialect of the path, which also has this field
            continue
        if step == 0:
            return b"[" + inner + b"]"
        fields = {name: values.get(name, "x") for name in each.get("required", ()) if name != step}
        others = b"".join(b",%s:%s" % (json.dumps(n).encode(), json.dumps(v).encode()) for n, v in fields.items())
        return b"{" + json.dumps(step).encode() + b":" + inner + others + b"}"
    raise KeyError(place)


@dataclass(frozen=True)
class Cost:
    """The cost of one body."""

    status: int
    answer_bytes: int
    cpu_seconds: float


def cost(client: httpx.Client, pid: int, path: str, body: bytes, headers: Mapping[str, str]) -> Cost:
    """Send a body and measure its cost; processor time includes children of the process that have ended."""
    before = cpu_seconds(pid)
    answer = client.post(path, content=body, headers={"Content-Type": "application/json", **headers})
    status = answer.status_code
    if path == BATCH and status == 200:  # it answers 200 with a status for each question, here for the only one
        status = max(each["status"] for each in answer.json()["answers"])
    return Cost(status, len(answer.content), cpu_seconds(pid) - before)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its ended children so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:15]) / float(os.sysconf("SC_CLK_TCK"))


def violations(
    url: str,
    pid: int,
    names: Mapping[str, str],
    size: int,
    bodies: Callable[[Schema, Mapping[str, Any], int], Iterable[Oversized]] = lambda document, values, size: chain(
        oversized(document, values, size), binary_tensors(document, size)
    ),
) -> list[str]:
    """Send oversized bodies to the service with this address and process; returns the violations."""
    texts = {"question": "how tall ?", "query": "how tall ?", "text": "a", "text_1": "a", "text_2": "a"}
    lists = {name: ["a"] for name in ("candidates", "documents", "texts", "items")}
    broken = []
    with httpx.Client(base_url=url, timeout=120.0) as client:
        document = client.get("/openapi.json").json()
        valid = json.dumps({"question": "how tall ?", "candidates": ["a" * size]}).encode()
        cheapest = [cost(client, pid, "/v1/rank", valid, {}) for _ in range(3)]
        assert {each.status for each in cheapest} == {200}
        most = MOST_RATIO * max(each.cpu_seconds for each in cheapest) + SPARE_SECONDS
        for each in bodies(document, {**texts, **lists, "model": names["model"]}, size):
            path = each.path.format(**names) if "{" in each.path else each.path
            measured = cost(client, pid, path, each.body, each.headers)
            if measured.status >= 500 or (each.must_refuse and measured.status < 400):
                broken.append(f"{each.name}: status {measured.status}")
            if measured.cpu_seconds > most:
                broken.append(f"{each.name}: {measured.cpu_seconds:.2f} s of a processor, {most:.2f} allowed")
            if measured.status >= 400 and measured.answer_bytes > MOST_ANSWER_BYTES:
                broken.append(f"{each.name}: an answer of {measured.answer_bytes} bytes")
    return broken
