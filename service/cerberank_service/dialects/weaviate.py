"""Weaviate's module reranker-transformers: `POST /rerank`, and `GET /meta` for the server that calls it.

Weaviate sends 32 documents at a time and merges the scores of all its requests. Exits therefore drop nothing, because
scores of different exits are not comparable. Scores are returned in the order of the request. This dialect is
recognised by `property`, which Weaviate always sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_models.request import QuestionText, Wire
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.wire import Document, Items, VendorWire, validate
from cerberank_service.errors import ServiceError


class WeaviateRerank(VendorWire):
    """Weaviate's request."""

    query: QuestionText
    documents: Annotated[list[str], Items]
    property: Annotated[str | None, Field(description="Has no effect; Weaviate sends an empty text.")] = None


class WeaviateScore(Wire):
    """The score of one document."""

    document: str
    score: float


class WeaviateAnswer(Wire):
    """Weaviate's answer, in the order of the request."""

    query: str
    scores: list[WeaviateScore]


def _parse(document: Document) -> tuple[RankCall, WeaviateRerank]:
    request = validate(WeaviateRerank, document)
    candidates = tuple(Candidate(text=text) for text in request.documents)
    call = RankCall(question=request.query, candidates=candidates, drop_ratio=0.0)
    return call, request


def _render(answer: RankAnswer, request: WeaviateRerank) -> dict[str, Any]:
    scores = np.empty(len(answer.order))
    scores[answer.order] = answer.falling_scores()
    return {
        "query": request.query,
        "scores": [
            {"document": text, "score": score} for text, score in zip(request.documents, scores.tolist(), strict=True)
        ],
    }


class WeaviateError(Wire):
    """The error body that Weaviate reads."""

    error: str


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """The error body that Weaviate reads, which has the message alone."""
    return error.kind.value, {"error": error.message}


def meta(checkpoint: Checkpoint) -> dict[str, Any]:
    """The answer of `/meta`, which Weaviate shows beside its other modules."""
    config = checkpoint.config
    return {"model": config.name, "version": checkpoint.manifest.version, "max_length": config.encoding.max_length}


def _matches(fields: Mapping[str, Any]) -> bool:
    return "documents" in fields and "property" in fields


RERANK = Dialect(
    paths=("/rerank",),
    summary="Weaviate rerank",
    tag="weaviate",
    request=WeaviateRerank,
    response=WeaviateAnswer,
    error=WeaviateError,
    parse=_parse,
    render=_render,
    format_error=format_error,
    matches=_matches,
)
