"""Reads BYTES tensors of the Open Inference Protocol, in JSON or in Triton's binary form after the JSON."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from cerberank_service.dialects.wire import Items, VendorWire, check_count
from cerberank_service.errors import Kind, ServiceError

LARGEST = 2**63 - 1
"""The protocol's type of a dimension."""


class TensorParameters(VendorWire):
    """The parameters of an input: the size of its binary data after the JSON."""

    binary_data_size: Annotated[int | None, Field(ge=0)] = None


class Tensor(VendorWire):
    """An input tensor; `data` is flat or nested by row."""

    name: Literal["question", "candidates"]
    shape: Annotated[list[Annotated[int, Field(ge=0, le=LARGEST)]], Field(min_length=1, max_length=8, fail_fast=True)]
    datatype: Literal["BYTES"]
    parameters: TensorParameters = TensorParameters()
    data: Annotated[list[JsonValue] | None, Items] = None


def read_tensors(tensors: Sequence[Tensor], binary: bytes, most: int) -> Iterator[tuple[str, list[str]]]:
    """Name and at most `most` texts of each input; `binary` is what followed the JSON. Raises ServiceError (400, 422).

    No more texts are made than the shape states, because each costs a microsecond and four bytes of the body.
    """
    place = 0
    for tensor in tensors:
        count = math.prod(tensor.shape)
        check_count(tensor.name, count, most)
        size = tensor.parameters.binary_data_size
        if (size is None) == (tensor.data is None):
            raise ServiceError(Kind.INVALID, f"{tensor.name}: needs data or binary_data_size, one of them")
        if size is None:
            texts = list(_flat(tensor.data, tensor.name))
        else:
            texts = list(islice(_unpacked(binary[place : place + size], tensor.name), count + 1))
            place += size
        if len(texts) != count or not texts:
            raise ServiceError(
                Kind.INVALID, f"{tensor.name}: shape {tensor.shape} does not fit the texts, or there are none"
            )
        yield tensor.name, texts
    if place != len(binary):
        raise ServiceError(Kind.MALFORMED, f"{len(binary) - place} bytes behind the JSON belong to no input")


def _flat(data: JsonValue, name: str) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, list):
        for item in data:
            yield from _flat(item, name)
    else:
        raise ServiceError(Kind.INVALID, f"{name}: BYTES holds strings only")


def _unpacked(data: bytes, name: str) -> Iterator[str]:
    """Decode strings, each of which follows its length in four bytes, little-endian."""
    place = 0
    try:
        while place < len(data):
            (size,) = struct.unpack_from("<I", data, place)
            text = data[place + 4 : place + 4 + size]
            if len(text) != size:
                raise ValueError(size)
            yield text.decode()
            place += 4 + size
    except (struct.error, ValueError) as error:
        raise ServiceError(Kind.MALFORMED, f"{name}: the binary data is cut off or not UTF-8") from error
