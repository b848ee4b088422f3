"""Cohere's rerank API, v2 and v1, as the `cohere` SDK calls it.

Clients of several other services send v1's fields to `/v1/rerank` and expect their own service's answer. The answer of
v1 therefore also has the fields of

- Jina and vLLM: `model`, `object`, `usage`, and `detail` in errors;
- Voyage: `data`, the same results with documents as texts;
- Xinference: `meta.tokens.output_tokens`.

OpenVINO Model Server takes Cohere's fields, with texts as documents, at `/v3/rerank`, which is served by v2.

`relevance_score` never rises down the list: see `RankAnswer.falling_scores`. After a missed deadline the status is 200,
with a warning in `meta`, because the SDK silently retries every status of 500 or more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator

from cerberank_models.encoding import Candidate
from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_models.request import Few, QuestionText, Wire, candidate_kind
from cerberank_models.windows import NO_LIMIT, Windowing
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.voyage import VoyageResult
from cerberank_service.dialects.wire import Document, Flag, Items, MostTokens, Top, VendorWire, validate
from cerberank_service.errors import Kind, ServiceError

TEXT = ("text",)
"""The fields of a document that are ranked by default."""


class RerankV2(VendorWire):
    """Cohere's v2 request, with `return_documents`, which the service has taken at times and clients still send.

    Unlike there, `model` may be left out.
    """

    model: str | None = None
    query: QuestionText
    documents: Annotated[list[str], Items]
    top_n: Top = None
    return_documents: Flag | None = None
    max_tokens_per_doc: MostTokens = None
    priority: Annotated[int | None, Field(ge=0, le=999, description="0 is the highest.")] = None


class DocumentV1(VendorWire):
    """A v1 document that is an object with any fields; `rank_fields` says which of them are read."""

    model_config = ConfigDict(extra="allow")

    text: str | None = None

    def fields(self, names: Sequence[str], place: int) -> str:
        """The values of the fields `names`, one in each line, in this order. Raises ServiceError (422)."""
        if names is TEXT and self.text is not None:  # a short cut for nearly all requests
            return self.text
        stated = self.model_dump(include=set(names), exclude_none=True)
        values = [stated[name] for name in names if name in stated]
        if not values:
            raise ServiceError(Kind.INVALID, f"documents[{place}].{names[0]}: is required")
        if not all(isinstance(value, str | int | float) for value in values):
            raise ServiceError(Kind.INVALID, f"documents[{place}]: the ranked fields must be texts or numbers")
        if any(isinstance(value, float) and not math.isfinite(value) for value in values):
            raise ServiceError(Kind.INVALID, f"documents[{place}]: a ranked field is not a finite number")
        return "\n".join(map(str, values))


DocumentIn = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[DocumentV1, Tag("<object>")], Discriminator(candidate_kind)
]


class RerankV1(VendorWire):
    """Cohere's v1 request."""

    query: QuestionText
    documents: Annotated[list[DocumentIn], Items]
    model: str | None = None
    top_n: Top = None
    rank_fields: Annotated[
        list[str] | None, Few, Field(description="The fields of documents to rank, in this order; `text` without it.")
    ] = None
    return_documents: Flag | None = None
    max_chunks_per_doc: Annotated[
        int | None, Field(ge=0, description="Windows in which a long document is read; the service's limit also holds.")
    ] = None

    max_tokens_per_doc: MostTokens = None

    @field_validator("rank_fields")
    @classmethod
    def _each_once(cls, names: list[str] | None) -> list[str] | None:
        """Refuse repeated names, because with them a small body could become a text of gigabytes."""
        if names is not None and len(set(names)) < len(names):
            raise ValueError("must name each field once")
        return names


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
    """Cohere's v1 answer, with the fields that clients of Jina, vLLM and Voyage read."""

    data: list[VoyageResult]
    model: str
    object: str
    usage: dict[str, int]


def _parse_v2(document: Document) -> tuple[RankCall, RerankV2]:
    request = validate(RerankV2, document)
    candidates = tuple(Candidate(text=text) for text in request.documents)
    call = RankCall(
        question=request.query,
        candidates=candidates,
        model=request.model,
        top_k=request.top_n,
        priority=request.priority or 0,
        most_tokens=request.max_tokens_per_doc,
    )
    return call, request


def _parse_v1(document: Document) -> tuple[RankCall, RerankV1]:
    request = validate(RerankV1, document)
    texts = texts_of(request.documents, request.rank_fields or TEXT)
    candidates = tuple(Candidate(text=text) for text in texts)
    call = RankCall(
        question=request.query,
        candidates=candidates,
        model=request.model,
        top_k=request.top_n,
        windowing=Windowing(most=request.max_chunks_per_doc or NO_LIMIT),
        most_tokens=request.max_tokens_per_doc,
    )
    return call, request


def texts_of(documents: Sequence[str | DocumentV1], fields: Sequence[str] = TEXT) -> tuple[str, ...]:
    """The texts of documents: a text itself, or the `fields` of an object. Raises ServiceError (422)."""
    return tuple(
        document if isinstance(document, str) else document.fields(fields, place)
        for place, document in enumerate(documents)
    )


def returned(document: str | DocumentV1) -> dict[str, Any]:
    """A document as it is returned: a text becomes an object, an object is returned as it was sent.

    A number beyond the range of floats is returned as null: it was read as infinite, and JSON has no infinity.
    """
    return {"text": document} if isinstance(document, str) else document.model_dump(mode="json", exclude_unset=True)


def _render_v2(answer: RankAnswer, request: RerankV2) -> dict[str, Any]:
    return _render(answer, "2", request)


def _render_v1(answer: RankAnswer, request: RerankV1) -> dict[str, Any]:
    rendered = _render(answer, "1", request)
    rendered["meta"]["tokens"]["output_tokens"] = 0
    data = [dict(result) for result in rendered["results"]]
    if request.return_documents:
        texts = texts_of(request.documents, request.rank_fields or TEXT)
        for each in data:
            each["document"] = texts[each["index"]]
    usage = {"total_tokens": answer.tokens}
    return rendered | {"data": data, "model": answer.model, "object": "list", "usage": usage}


def _render(answer: RankAnswer, version: str, request: RerankV2 | RerankV1) -> dict[str, Any]:
    places = zip(answer.order.tolist(), answer.falling_scores().tolist(), strict=True)
    meta: dict[str, Any] = {
        "api_version": {"version": version},
        "billed_units": {"search_units": 1},
        "tokens": {"input_tokens": answer.tokens},
    }
    if answer.warnings:
        meta["warnings"] = list(answer.warnings)
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": score} for index, score in places]
    if request.return_documents:
        for result in results:
            result["document"] = returned(request.documents[result["index"]])
    return {"id": answer.request_id, "results": results, "meta": meta}


class CohereError(Wire):
    """Cohere's error body."""

    id: str
    message: str


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """Cohere's error body; the SDK maps the status to its own exception types."""
    return error.kind.value, {"id": request_id, "message": error.message}


class CohereErrorV1(CohereError):
    """Cohere's error body, with the field `detail` of Jina and Voyage."""

    detail: str


def format_error_v1(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """The error body on `/v1/rerank`, which clients of Cohere, Jina and Voyage share."""
    status, body = format_error(error, request_id)
    return status, body | {"detail": error.message}


V2 = Dialect(
    paths=("/v2/rerank", "/v3/rerank"),
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
    error=CohereErrorV1,
    parse=_parse_v1,
    render=_render_v1,
    format_error=format_error_v1,
)
