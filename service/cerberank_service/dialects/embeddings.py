"""OpenAI's `/v1/embeddings`: the vectors of texts by the bi-encoder of a model's first stage.

OpenAI's own client asks for `base64`, which is the bytes of little-endian float32.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field
from pydantic_core import to_json

from cerberank_models.backends.stage_contract import Vector
from cerberank_models.request import Wire
from cerberank_models.text_config import TextRankerConfig
from cerberank_service.dialects.vllm import Texts
from cerberank_service.dialects.wire import VendorWire
from cerberank_service.errors import Kind, ServiceError


class EmbeddingsRequest(VendorWire):
    """One text or several."""

    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int | None, Field(description="Any other number than the vectors' own is refused.")] = None
    user: Annotated[str | None, Field(description="Has no effect.")] = None


class Embedding(Wire):
    """The vector of one text, of length 1."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsAnswer(Wire):
    """The vectors, in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: dict[str, int]


def check_encoder(request: EmbeddingsRequest, encoder: TextRankerConfig | None, model: str) -> None:
    """Raises ServiceError (400) unless the model has an encoder that gives a text one vector to compare by cosine."""
    problem = ""
    if encoder is None:
        problem = f"model: {model} has no bi-encoder; `cerberank checkpoint first-stage` attaches one to a checkpoint"
    elif encoder.token_ranker != "dot":
        problem = (
            f"model: the vectors of {model} are not compared by cosine; attach a bi-encoder of sentence-transformers"
        )
    elif request.dimensions not in (None, encoder.fixed_width):
        problem = f"dimensions: the vectors of {model} have {encoder.fixed_width} numbers; leave the field out"
    if problem:
        raise ServiceError(Kind.INVALID, problem, reason="no such embeddings")


def render(request: EmbeddingsRequest, model: str, vectors: Sequence[Vector], tokens: int) -> bytes:
    """The answer as JSON, in the shape of EmbeddingsAnswer."""
    written = _base64 if request.encoding_format == "base64" else _numbers
    data = [{"object": "embedding", "index": index, "embedding": written(row)} for index, row in enumerate(vectors)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return to_json({"object": "list", "data": data, "model": model, "usage": usage})


def _base64(vector: Vector) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _numbers(vector: Vector) -> list[float]:
    return list(vector.tolist())
