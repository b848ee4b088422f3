"""Finds the external files that an ONNX graph names for its tensors.

ONNX Runtime opens such files by the path that the graph states, and some versions read files outside of the graph's
folder. A graph written by `export` holds all of its tensors, or names one file beside it if they take 2 GB. This parser
of onnx.proto3 in protobuf's wire format reads only the fields that lead to tensors, because the package `onnx` is not a
dependency of the service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from mmap import mmap
from types import MappingProxyType

Fields = Mapping[int, str]
WITHIN: Mapping[str, Fields] = MappingProxyType(
    {
        "model": {7: "graph", 20: "training", 25: "function"},
        "graph": {1: "node", 5: "tensor", 15: "sparse"},
        "node": {5: "attribute"},
        "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
        "sparse": {1: "tensor", 2: "tensor"},
        "function": {7: "node", 11: "attribute"},
        "training": {1: "graph", 2: "graph"},
        "tensor": {},
    }
)
"""For each kind of message, the fields that lead to tensors, and the kinds of messages in them."""
EXTERNAL_DATA, DATA_LOCATION = 13, 14
"""Fields of a tensor: key-value entries that describe its external file, and a flag for tensors in such a file."""
KEY, VALUE = 1, 2
"""Fields of an entry of EXTERNAL_DATA."""
PLACE, OTHERS = b"location", (b"offset", b"length", b"checksum")
"""Keys of these entries: the path of the file, and those that describe the part of the file."""
VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
"""Protobuf's wire types."""
DEEPEST = 100
"""The deepest nesting of messages, which is also the limit of protobuf's own parsers."""


class GraphError(ValueError):
    """The content is not an ONNX graph."""


def external_files(content: bytes | mmap) -> frozenset[str]:
    """The paths that an ONNX model states for tensors in other files; "" for such a tensor without a path.

    Raises GraphError if the content is malformed.
    """
    return frozenset(_files(memoryview(content), "model", 0))


def _files(message: memoryview, kind: str, depth: int) -> Iterator[str]:
    if depth > DEEPEST:
        raise GraphError("its messages are nested too deeply")
    outside, places = False, list[str]()
    for number, value in _fields(message):
        if kind == "tensor" and number == EXTERNAL_DATA:
            outside = True
            places += _places(value)
        elif kind == "tensor" and number == DATA_LOCATION and value != 0:
            outside = True
        inner = WITHIN[kind].get(number)
        if inner is not None and isinstance(value, memoryview):
            yield from _files(value, inner, depth + 1)
    if outside:
        yield from places or [""]


def _places(entry: int | memoryview) -> Iterator[str]:
    """The paths in one entry of a tensor's external data; "" for an entry that is not in the format.

    If an entry has several keys or values, all of them are returned, although parsers use only the last one.
    """
    if not isinstance(entry, memoryview):
        yield ""
        return
    fields = [(number, value.tobytes() if isinstance(value, memoryview) else b"") for number, value in _fields(entry)]
    keys = {value for number, value in fields if number == KEY}
    if not keys or not keys <= {PLACE, *OTHERS}:
        yield ""
    elif PLACE in keys:
        values = [value for number, value in fields if number == VALUE]
        yield from (value.decode("utf-8", "replace") for value in values or [b""])


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The number and value of each field. Fixed-size numbers, which do not lead to tensors, are returned as bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        if tag >> 32 or tag < 8:  # protobuf's C++ parser truncates a tag to 32 bits, and would read another field
            raise GraphError("it has a field whose number is out of range")
        kind, size = tag & 7, 0
        if kind == VARINT:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        if kind == BYTES:
            size, place = _varint(message, place)
        elif kind in {EIGHT_BYTES, FOUR_BYTES}:
            size = 8 if kind == EIGHT_BYTES else 4
        else:
            raise GraphError(f"it has a field of the unknown wire type {kind}")
        if place + size > len(message):
            raise GraphError("it ends within a field")
        yield tag >> 3, message[place : place + size]
        place += size


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """A varint (seven bits per byte), and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            raise GraphError("it ends within a number")
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
    raise GraphError("it has a number of more than ten bytes")
