"""Jina's rerank API: Cohere v1's fields, but documents are returned by default.

On the shared path `/v1/rerank` this dialect is recognised by a model name that begins with `jina-`. The setting
`aliases` makes the service accept such a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from cerberank_models.encoding import Candidate
from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_models.request import QuestionText, Wire
from cerberank_service.dialects.cohere import DocumentIn, ScoredDocument, texts_of
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.wire import Document, Flag, Items, MostTokens, Top, VendorWire, validate
from cerberank_service.errors import ServiceError


class JinaRerank(VendorWire):
    """Jina's request."""

    model: str
    query: QuestionText
    documents: Annotated[list[DocumentIn], Items]
    top_n: Top = None
    return_documents: Annotated[Flag | None, Field(description="Documents come back unless it is false.")] = None
    max_doc_length: MostTokens = None
    return_embeddings: Annotated[Literal[False] | None, Field(description="A cross-encoder has none.")] = False


class JinaAnswer(Wire):
    """Jina's answer, best first."""

    model: str
    object: Literal["list"]
    usage: dict[str, int]
    results: list[ScoredDocument]


def _parse(document: Document) -> tuple[RankCall, JinaRerank]:
    request = validate(JinaRerank, document)
    candidates = tuple(Candidate(text=text) for text in texts_of(request.documents))
    call = RankCall(
        question=request.query,
        candidates=candidates,
        model=request.model,
        top_k=request.top_n,
        most_tokens=request.max_doc_length,
    )
    return call, request


def _render(answer: RankAnswer, request: JinaRerank) -> dict[str, Any]:
    texts = () if request.return_documents is False else texts_of(request.documents)
    results = []
    for index, score in zip(answer.order.tolist(), answer.falling_scores().tolist(), strict=True):
        result: dict[str, Any] = {"index": index, "relevance_score": score}
        if texts:
            result["document"] = {"text": texts[index]}
        results.append(result)
    return {
        "model": request.model,
        "object": "list",
        "usage": {"total_tokens": answer.tokens, "prompt_tokens": answer.tokens},
        "results": results,
    }


class JinaError(Wire):
    """Jina's error body."""

    detail: str


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """Jina's error body, whose `detail` begins with the request id."""
    return error.kind.value, {"detail": f"[RID: {request_id}] {error.message}"}


def _matches(fields: Mapping[str, Any]) -> bool:
    return str(fields.get("model")).startswith("jina-")


RERANK = Dialect(
    paths=("/v1/rerank", "/jina/v1/rerank"),
    summary="Jina rerank",
    tag="jina",
    request=JinaRerank,
    response=JinaAnswer,
    error=JinaError,
    parse=_parse,
    render=_render,
    format_error=format_error,
    matches=_matches,
)
