"""The Open Inference Protocol v2 (KServe, Triton): a question and its candidates as BYTES tensors.

- Inputs: `question` [1] and `candidates` [n].
- Outputs: `scores` FP32 [n] and `stages` INT32 [n] by candidate, and `order` INT64 [n], the candidates best first.
- Parameters: `drop_ratio`, `lexical_ratio`, and Triton's `timeout` in microseconds, which is the deadline.

Inputs may be in the binary form that Triton's client sends; answers are JSON.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, JsonValue, model_validator

from cerberank_models.encoding import Candidate
from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_models.request import Ratio, Wire, is_blank
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.wire import Document, Items, VendorWire, check_count, validate
from cerberank_service.errors import Kind, ServiceError

INPUTS = ("question", "candidates")
LONGEST_TIMEOUT = 2**63 - 1
"""The largest number of Triton's type for timeouts."""
OUTPUTS = {"scores": "FP32", "stages": "INT32", "order": "INT64"}


class RequestedOutput(VendorWire):
    """An output that the client requests; its parameters, such as `binary_data`, have no effect."""

    name: Literal["scores", "stages", "order"]


class InferParameters(VendorWire):
    """Options of a request."""

    drop_ratio: Ratio | None = None
    lexical_ratio: Ratio | None = None
    timeout: Annotated[int | None, Field(ge=1, le=LONGEST_TIMEOUT, description="The deadline, in microseconds.")] = None
    binary_data_output: Annotated[bool, Field(description="Accepted; answers are JSON.")] = False


class InferRequest(VendorWire):
    """The body of `infer`."""

    id: Annotated[str | None, Field(max_length=128)] = None
    parameters: InferParameters = InferParameters()
    inputs: Annotated[list[Tensor], Field(min_length=2, max_length=2, fail_fast=True)]
    outputs: Annotated[list[RequestedOutput] | None, Field(max_length=len(OUTPUTS), fail_fast=True)] = None

    @model_validator(mode="after")
    def _both_inputs(self) -> InferRequest:
        if {tensor.name for tensor in self.inputs} != set(INPUTS):
            raise ValueError("needs the inputs question and candidates, each once")
        return self


class OutputTensor(Wire):
    """An output tensor with flat data."""

    name: str
    shape: list[int]
    datatype: str
    data: list[float]


class InferAnswer(Wire):
    """The answer of `infer`."""

    model_name: str
    model_version: str
    id: str
    parameters: dict[str, bool]
    outputs: list[OutputTensor]


def parse(document: Document) -> tuple[RankCall, InferRequest]:
    """The call of a document, whose JSON may be followed by binary tensors. Raises ServiceError (400, 422)."""
    request = validate(InferRequest, document)
    texts = dict(read_tensors(request.inputs, document.binary, document.most_candidates))
    if len(texts["question"]) != 1 or is_blank(texts["question"][0]):
        raise ServiceError(Kind.INVALID, "question: must be one text with a visible character")
    timeout = request.parameters.timeout
    call = RankCall(
        question=texts["question"][0],
        candidates=tuple(Candidate(text=text) for text in texts["candidates"]),
        model=document.path.get("model"),
        version=document.path.get("version"),
        drop_ratio=request.parameters.drop_ratio,
        lexical_ratio=request.parameters.lexical_ratio,
        deadline_ms=None if timeout is None else timeout / 1000.0,
    )
    return call, request


def render(answer: RankAnswer, request: InferRequest) -> dict[str, Any]:
    """The requested outputs, or all by default; scores never rise along `order`."""
    scores = np.empty(len(answer.scores))
    scores[answer.order] = answer.falling_scores()
    values: dict[str, list[Any]] = {
        "scores": scores.tolist(),
        "stages": answer.stages.tolist(),
        "order": answer.order.tolist(),
    }
    wanted = list(OUTPUTS) if request.outputs is None else [output.name for output in request.outputs]
    return {
        "model_name": answer.model,
        "model_version": answer.version,
        "id": request.id or answer.request_id,
        "parameters": {"complete": answer.complete},
        "outputs": [
            {"name": name, "shape": [len(values[name])], "datatype": OUTPUTS[name], "data": values[name]}
            for name in wanted
        ],
    }


class InferError(Wire):
    """The protocol's error body."""

    error: str


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """The kind's status and the protocol's error body."""
    return error.kind.value, {"error": error.message}


LARGEST = 2**63 - 1
"""The largest number of the protocol's type for dimensions."""


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
    """The name and the texts, at most `most`, of each input. Raises ServiceError (400, 422).

    `binary` is the part of the body after the JSON. Decoding stops at the number of texts that the shape states: a text
    may take only four bytes of the body, and decoding it takes a microsecond.
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
    """Decode strings, each preceded by its length in four bytes, little-endian."""
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


MODEL_PATHS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
INFER = Dialect(
    paths=tuple(f"{path}/infer" for path in MODEL_PATHS),
    summary="Open Inference Protocol infer",
    tag="open-inference",
    request=InferRequest,
    response=InferAnswer,
    error=InferError,
    parse=parse,
    render=render,
    format_error=format_error,
)
"""On a path without a model the default model answers."""
