"""Cohere's rerank API, v2 and v1, as the `cohere` SDK calls it.

Many other clients send v1's fields to `/v1/rerank` and expect an answer in Jina's or vLLM's format. The answer of v1
therefore also has their fields `model`, `object` and `usage`.

`relevance_score` never rises down the list: see `RankAnswer.falling_scores`. A missed deadline is 200 with a warning in
`meta`, because the SDK silently retries every status of 500 or more. Long documents are read in windows, of which the
best one counts, as Cohere reads them in chunks.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator

from cerberank_models.encoding import Candidate
from cerberank_models.windows import NO_LIMIT, Windowing
from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.wire import Document, Few, Items, Wire, candidate_kind, not_blank, validate
from cerberank_service.errors import ServiceError


class RerankV2(Wire):
    """Cohere's v2 request."""

    model: str
    query: str
    documents: Annotated[list[str], Items]
    top_n: Annotated[int | None, Field(ge=1)] = None
    max_tokens_per_doc: Annotated[
        int | None, Field(ge=1, description="Tokens of a document that are read; all within the limits when left out.")
    ] = None
    priority: Annotated[int, Field(ge=0, le=999, description="0 is the highest.")] = 0

    _query = field_validator("query")(not_blank)


class DocumentV1(Wire):
    """A v1 document in the form of an object: any fields are accepted, only `text` is read."""

    model_config = ConfigDict(extra="ignore")

    text: str


DocumentIn = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[DocumentV1, Tag("<object>")], Discriminator(candidate_kind)
]


class RerankV1(Wire):
    """Cohere's v1 request."""

    query: str
    documents: Annotated[list[DocumentIn], Items]
    model: str | None = None
    top_n: Annotated[int | None, Field(ge=1)] = None
    rank_fields: Annotated[list[str] | None, Few] = None
    return_documents: bool = False
    max_chunks_per_doc: Annotated[
        int | None, Field(ge=1, description="Windows in which a long document is read; the service's limit also holds.")
    ] = None

    _query = field_validator("query")(not_blank)

    @field_validator("rank_fields")
    @classmethod
    def _fields(cls, fields: list[str] | None) -> list[str] | None:
        if fields not in (None, ["text"]):
            raise ValueError("only ['text'] can be ranked")
        return fields


class ScoredDocument(Wire):
    """One result of the answer."""

    index: int
    relevance_score: float
    document: DocumentV1 | None = None


class RerankAnswer(Wire):
    """Cohere's answer, best first."""

    id: str
    results: list[ScoredDocument]
    meta: dict[str, Any]


class RerankAnswerV1(RerankAnswer):
    """Cohere's v1 answer, with the fields that clients of Jina and vLLM read."""

    model: str
    object: str
    usage: dict[str, int]


def _parse_v2(document: Document) -> tuple[RankCall, None]:
    request = validate(RerankV2, document)
    candidates = tuple(Candidate(text=text) for text in request.documents)
    call = RankCall(
        question=request.query,
        candidates=candidates,
        model=request.model,
        top_k=request.top_n,
        priority=request.priority,
        windowing=Windowing(),
        most_tokens=request.max_tokens_per_doc or None,
    )
    return call, None


def _parse_v1(document: Document) -> tuple[RankCall, RerankV1]:
    request = validate(RerankV1, document)
    candidates = tuple(Candidate(text=text_of(document)) for document in request.documents)
    call = RankCall(
        question=request.query,
        candidates=candidates,
        model=request.model,
        top_k=request.top_n,
        windowing=Windowing(most=request.max_chunks_per_doc or NO_LIMIT),
    )
    return call, request


def text_of(document: str | DocumentV1) -> str:
    """The text of a document in either form."""
    return document if isinstance(document, str) else document.text


def _render_v2(answer: RankAnswer, nothing: None) -> dict[str, Any]:
    return _render(answer, "2")


def _render_v1(answer: RankAnswer, request: RerankV1) -> dict[str, Any]:
    rendered = _render(answer, "1")
    rendered |= {"model": answer.model, "object": "list", "usage": {"total_tokens": answer.tokens}}
    if request.return_documents:
        for result in rendered["results"]:
            result["document"] = {"text": text_of(request.documents[result["index"]])}
    return rendered


def _render(answer: RankAnswer, version: str) -> dict[str, Any]:
    places = zip(answer.order.tolist(), answer.falling_scores().tolist(), strict=True)
    meta: dict[str, Any] = {
        "api_version": {"version": version},
        "billed_units": {"search_units": 1},
        "tokens": {"input_tokens": answer.tokens},
    }
    if answer.warnings:
        meta["warnings"] = list(answer.warnings)
    return {
        "id": answer.request_id,
        "results": [{"index": index, "relevance_score": score} for index, score in places],
        "meta": meta,
    }


class CohereError(Wire):
    """Cohere's error body."""

    id: str
    message: str


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """Cohere's error body; the SDK maps the status to its own exception types."""
    return error.kind.value, {"id": request_id, "message": error.message}


V2 = Dialect(
    paths=("/v2/rerank",),
    summary="Cohere rerank, v2",
    tag="cohere",
    request=RerankV2,
    response=RerankAnswer,
    error=CohereError,
    parse=_parse_v2,
    render=_render_v2,
    format_error=format_error,
)
V1 = Dialect(
    paths=("/v1/rerank",),
    summary="Cohere rerank, v1",
    tag="cohere",
    request=RerankV1,
    response=RerankAnswerV1,
    error=CohereError,
    parse=_parse_v1,
    render=_render_v1,
    format_error=format_error,
)
