"""Finds the files beside an ONNX graph in which tensors of it lie.

ONNX Runtime opens such files by a path that the graph states; some versions of it read files outside of the graph's
folder. A graph that `export` writes holds all of its tensors, or names one file beside it if they take 2 GB. Only the
few fields of the format that lead to tensors are read (onnx.proto3, protobuf's wire format); the package `onnx` is not
a dependency of serving.
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
"""The fields of each kind of message that lead to tensors, with the kinds of their messages."""
EXTERNAL_DATA, DATA_LOCATION = 13, 14
"""Fields of a tensor: the file's place in entries of a key and a value, and whether the tensor lies in one."""
KEY, VALUE = 1, 2
"""Fields of such an entry."""
PLACE, OTHERS = b"location", (b"offset", b"length", b"checksum")
"""Keys of such entries: where the tensor is, and which part of the file."""
VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
"""Protobuf's wire types."""
DEEPEST = 100
"""Messages within messages; protobuf's own parsers allow as many."""


class GraphError(ValueError):
    """The content is not an ONNX graph."""


def external_files(content: bytes | mmap) -> frozenset[str]:
    """The paths that an ONNX model states for tensors in other files; "" stands for a tensor that states none.

    Raises GraphError when the content is malformed.
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
    """The paths in one entry of a tensor's external data; "" for an entry that has another meaning than the format's.

    A parser takes the last of several keys or values; here each of them counts.
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
    """Number and value of each field; of a fixed-size number, which leads to no tensor, its bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        if tag >> 32 or tag < 8:  # protobuf's C++ parser cuts a tag to 32 bits, and would read another field here
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
    """A number of seven bits a byte, and the place after it."""
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
