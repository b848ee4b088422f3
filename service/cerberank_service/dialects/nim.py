"""NVIDIA NIM's ranking API: a query with passages, answered with log-odds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from cerberank_models.encoding import Candidate
from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_models.request import QuestionText, Wire
from cerberank_models.windows import Windowing
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.wire import Document, Items, Top, VendorWire, validate
from cerberank_service.errors import Kind, ServiceError

ERROR_TYPES = {
    Kind.UNAUTHORIZED: "authentication_error",
    Kind.EXHAUSTED: "rate_limit_error",
    Kind.INTERNAL: "internal_server_error",
    Kind.UNAVAILABLE: "service_unavailable_error",
}
"""The `type` of an error; every other kind is an `invalid_request_error`."""


class NimQuery(VendorWire):
    """The question."""

    text: QuestionText


class NimPassage(VendorWire):
    """A candidate."""

    text: str


class NimRanking(VendorWire):
    """NIM's request, with `top_k`, which LiteLLM sends to the hosted API's path."""

    model: str | None = None
    query: NimQuery
    passages: Annotated[list[NimPassage], Items]
    truncate: Annotated[
        Literal["NONE", "END"] | None,
        Field(
            description="END cuts texts at the token limit; without it they are read in windows; NONE refuses those "
            "that cannot be read to their ends so."
        ),
    ] = None
    top_k: Top = None
    instruction: Annotated[str | None, Field(description="For models with a prompt; others ignore it.")] = None


class NimRank(Wire):
    """One passage of the answer."""

    index: int
    logit: float


class NimUsage(Wire):
    """The tokens of the request."""

    prompt_tokens: int
    total_tokens: int


class NimAnswer(Wire):
    """NIM's answer, best first."""

    rankings: list[NimRank]
    usage: NimUsage


def _parse(document: Document) -> tuple[RankCall, None]:
    request = validate(NimRanking, document)
    call = RankCall(
        question=request.query.text,
        candidates=tuple(Candidate(text=passage.text) for passage in request.passages),
        model=request.model,
        top_k=request.top_k,
        windowing=None if request.truncate == "END" else Windowing(),
        refuse_truncation=request.truncate == "NONE",
        instruction=request.instruction or None,
        ignore_instruction=True,
    )
    return call, None


def _render(answer: RankAnswer, nothing: None) -> dict[str, Any]:
    places = zip(answer.order.tolist(), answer.falling_log_odds().tolist(), strict=True)
    return {
        "rankings": [{"index": index, "logit": logit} for index, logit in places],
        "usage": {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens},
    }


class NimError(Wire):
    """NIM's error body."""

    object: Literal["error"]
    message: str
    detail: dict[str, str]
    type: str


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """The kind's status and NIM's error body."""
    kind = ERROR_TYPES.get(error.kind, "invalid_request_error")
    return error.kind.value, {"object": "error", "message": error.message, "detail": {}, "type": kind}


RANKING = Dialect(
    paths=("/v1/ranking", "/v1/retrieval/{model:path}/reranking"),
    summary="NVIDIA NIM ranking",
    tag="nim",
    request=NimRanking,
    response=NimAnswer,
    error=NimError,
    parse=_parse,
    render=_render,
    format_error=format_error,
)
"""The second path is that of NVIDIA's hosted API; the model is taken from the body, not from the path."""
