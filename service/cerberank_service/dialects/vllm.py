"""vLLM's `/rerank` with the parts that it shares with `/score`, and Infinity's `/rerank`.

Requests on the shared path `/rerank` are told apart by their fields: text-embeddings-inference has `texts` in place of
`documents`, and Infinity's client always sends `raw_scores`. llama.cpp's server and Lemonade take vLLM's fields, so
their paths (`/reranking`, `/v1/reranking`, `/api/v1/reranking`) are served by vLLM's dialect, although their own
results have no texts. Infinity returns documents as plain texts; its version 3 names them `texts`, with `documents` as
another name.

Texts beyond the token limit are read in windows, or cut if the request has `truncate_prompt_tokens`. vLLM itself
refuses such texts without that field.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Discriminator, Field, Tag

from cerberank_models.encoding import Candidate
from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_models.request import QuestionText, Wire
from cerberank_models.windows import Windowing
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.wire import Document, Flag, Items, MostTokens, Top, VendorWire, validate
from cerberank_service.errors import Kind, ServiceError


def _side_kind(value: Any) -> str | None:
    """The tag of the union's branch, so that error messages only mention that branch; None for any other type."""
    return "<text>" if isinstance(value, str) else "<list>" if isinstance(value, list) else None


Texts = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[list[str], Items, Tag("<list>")],
    Discriminator(
        _side_kind,
        custom_error_type="text_or_texts",
        custom_error_message="must be a text or a list of texts",
    ),
]
"""One text or several."""
STATUSES = {Kind.INVALID: 400}
"""vLLM answers 400 where others answer 422."""


class Common(VendorWire):
    """The fields that `/rerank` and `/score` share."""

    model: str | None = None
    truncation_side: Annotated[Literal["right"] | None, Field(description="Texts are cut at their ends.")] = None
    truncate_prompt_tokens: Annotated[
        int | None, Field(ge=-1, description="Any number cuts texts at the token limit, which is the model's own.")
    ] = None
    max_tokens_per_doc: MostTokens = None
    use_activation: Annotated[Flag | None, Field(description="False gives log-odds instead of probabilities.")] = None


class VllmRerank(Common):
    """vLLM's rerank request."""

    query: QuestionText
    documents: Texts
    top_n: Top = None


class VllmResult(Wire):
    """One result of the answer of `/rerank`; the text is always returned."""

    index: int
    document: dict[str, str | None]
    relevance_score: float


class VllmRerankAnswer(Wire):
    """The answer of `/rerank`, best first."""

    id: str
    model: str
    usage: dict[str, int]
    results: list[VllmResult]


def texts_of(side: str | list[str]) -> list[str]:
    """One text or several, as a list."""
    return [side] if isinstance(side, str) else side


def _parse_rerank(document: Document) -> tuple[RankCall, VllmRerank]:
    request = validate(VllmRerank, document)
    candidates = tuple(Candidate(text=text) for text in texts_of(request.documents))
    call = RankCall(
        question=request.query,
        candidates=candidates,
        model=request.model,
        top_k=request.top_n,
        windowing=windowing_of(request),
        most_tokens=request.max_tokens_per_doc,
    )
    return call, request


def windowing_of(request: Common) -> Windowing | None:
    """The windows for texts that do not fit; None, which cuts them, if the request has `truncate_prompt_tokens`."""
    return Windowing() if request.truncate_prompt_tokens is None else None


def scores_of(answer: RankAnswer, request: Common) -> list[float]:
    """Scores in the answer's order, as probabilities or log-odds."""
    scores = answer.falling_log_odds() if request.use_activation is False else answer.falling_scores()
    return list(scores.tolist())


def usage_of(answer: RankAnswer) -> dict[str, int]:
    """The token counts of an answer."""
    return {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens}


def _render_rerank(answer: RankAnswer, request: VllmRerank) -> dict[str, Any]:
    texts = texts_of(request.documents)
    places = zip(answer.order.tolist(), scores_of(answer, request), strict=True)
    return {
        "id": f"rerank-{answer.request_id}",
        "model": answer.model,
        "usage": usage_of(answer),
        "results": [
            {"index": index, "document": {"text": texts[index]}, "relevance_score": score} for index, score in places
        ],
    }


class InfinityRerank(VendorWire):
    """Infinity's rerank request."""

    query: QuestionText
    documents: Annotated[
        list[str],
        Items,
        Field(description="`texts` is another name.", validation_alias=AliasChoices("documents", "texts")),
    ]
    model: str | None = None
    top_n: Top = None
    return_documents: Flag | None = None
    raw_scores: Annotated[Flag | None, Field(description="The score's log-odds instead of the probability.")] = None


class InfinityResult(Wire):
    """One result of Infinity's answer."""

    index: int
    relevance_score: float
    document: str | None


class InfinityAnswer(Wire):
    """Infinity's answer, best first."""

    object: Literal["rerank"]
    id: str
    created: int
    model: str
    usage: dict[str, int]
    results: list[InfinityResult]


def _parse_infinity(document: Document) -> tuple[RankCall, InfinityRerank]:
    request = validate(InfinityRerank, document)
    candidates = tuple(Candidate(text=text) for text in request.documents)
    call = RankCall(question=request.query, candidates=candidates, model=request.model, top_k=request.top_n)
    return call, request


def _render_infinity(answer: RankAnswer, request: InfinityRerank) -> dict[str, Any]:
    scores = answer.falling_log_odds() if request.raw_scores else answer.falling_scores()
    return {
        "object": "rerank",
        "id": f"infinity-{answer.request_id}",
        "created": int(time.time()),
        "model": answer.model,
        "usage": usage_of(answer),
        "results": [
            {
                "index": index,
                "relevance_score": score,
                "document": request.documents[index] if request.return_documents else None,
            }
            for index, score in zip(answer.order.tolist(), scores.tolist(), strict=True)
        ],
    }


class VllmErrorFields(Wire):
    """The fields of vLLM's error body."""

    message: str
    type: str
    param: str | None
    code: int


class VllmError(Wire):
    """VLLM's error body."""

    error: VllmErrorFields


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """The status and error body of vLLM."""
    status = STATUSES.get(error.kind, error.kind.value)
    kind = HTTPStatus(status).phrase.replace(" ", "").removesuffix("Error") + "Error"
    return status, {"error": {"message": error.message, "type": kind, "param": None, "code": status}}


def _matches(fields: Mapping[str, Any]) -> bool:
    return "documents" in fields


def _matches_infinity(fields: Mapping[str, Any]) -> bool:
    return "documents" in fields and "raw_scores" in fields


RERANK = Dialect(
    paths=("/rerank", "/vllm/rerank", "/vllm/v1/rerank", "/reranking", "/v1/reranking", "/api/v1/reranking"),
    summary="vLLM rerank",
    tag="vllm",
    request=VllmRerank,
    response=VllmRerankAnswer,
    error=VllmError,
    parse=_parse_rerank,
    render=_render_rerank,
    format_error=format_error,
    matches=_matches,
)
INFINITY = Dialect(
    paths=("/rerank", "/infinity/rerank", "/infinity/v1/rerank"),
    summary="Infinity rerank",
    tag="infinity",
    request=InfinityRerank,
    response=InfinityAnswer,
    error=VllmError,
    parse=_parse_infinity,
    render=_render_infinity,
    format_error=format_error,
    matches=_matches_infinity,
)
