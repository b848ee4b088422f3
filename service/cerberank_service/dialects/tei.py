"""text-embeddings-inference's `POST /rerank` and `GET /info`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from cerberank_models import __version__
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_models.request import QuestionText, Wire
from cerberank_models.windows import Windowing
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.wire import Document, Flag, Items, Top, VendorWire, validate
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.settings import Settings

ERROR_TYPES = {
    Kind.MALFORMED: "Validation",
    Kind.UNAUTHORIZED: "Validation",
    Kind.NOT_FOUND: "Validation",
    Kind.METHOD_NOT_ALLOWED: "Validation",
    Kind.TIMEOUT: "Validation",
    Kind.CONFLICT: "Validation",
    Kind.TOO_LARGE: "Validation",
    Kind.INVALID: "Validation",
    Kind.EXHAUSTED: "Overloaded",
    Kind.INTERNAL: "Backend",
    Kind.UNAVAILABLE: "Unhealthy",
}
BACKEND_STATUS = 424
"""The status that text-embeddings-inference returns when its model fails."""


class RerankRequest(VendorWire):
    """A query and its texts. `top_n` is not a field of that server, but clients send it and expect no more results."""

    query: QuestionText
    texts: Annotated[list[str], Items]
    top_n: Top = None
    truncate: Annotated[
        Flag | None,
        Field(
            description="True cuts texts at the token limit; without it they are read in windows; false refuses those "
            "that cannot be read to their ends so."
        ),
    ] = None
    truncation_direction: Annotated[
        str | None,
        Field(
            pattern="^([Rr]ight|[Ll]eft)$",
            description="Texts are cut on the right; with `Left` those are refused that would have to be cut.",
        ),
    ] = None
    raw_scores: Annotated[Flag | None, Field(description="The score's log-odds instead of the probability.")] = None
    return_text: Flag | None = None


class Rank(Wire):
    """One result of the answer, which is a plain list."""

    index: int
    score: float
    text: str | None = None


def _parse(document: Document) -> tuple[RankCall, RerankRequest]:
    request = validate(RerankRequest, document)
    call = RankCall(
        question=request.query,
        candidates=tuple(Candidate(text=text) for text in request.texts),
        top_k=request.top_n,
        windowing=None if request.truncate else Windowing(),
        refuse_truncation=request.truncate is False or (request.truncation_direction or "").lower() == "left",
    )
    return call, request


def _render(answer: RankAnswer, request: RerankRequest) -> list[dict[str, Any]]:
    scores = answer.falling_log_odds() if request.raw_scores else answer.falling_scores()
    ranks = []
    for index, score in zip(answer.order.tolist(), scores.tolist(), strict=True):
        rank: dict[str, Any] = {"index": index, "score": score}
        if request.return_text:
            rank["text"] = request.texts[index]
        ranks.append(rank)
    return ranks


class TeiError(Wire):
    """The error body of text-embeddings-inference."""

    error: str
    error_type: str


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """The status (424 for an internal error) and the error body of text-embeddings-inference."""
    status = BACKEND_STATUS if error.kind is Kind.INTERNAL else error.kind.value
    return status, {"error": error.message, "error_type": ERROR_TYPES[error.kind]}


def info(checkpoint: Checkpoint, precision: str, settings: Settings, step_tokens: int) -> dict[str, Any]:
    """The answer of `/info`: the fields that clients read, with this service's values."""
    config = checkpoint.config
    return {
        "model_id": config.name,
        "model_sha": checkpoint.manifest.version,
        "model_dtype": precision,
        "served_model_name": config.name,
        "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
        "max_concurrent_requests": settings.max_candidates,
        "max_input_length": config.encoding.max_length,
        "max_batch_tokens": step_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": settings.max_candidates,
        "auto_truncate": True,
        "tokenization_workers": settings.encode_workers,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }


RERANK = Dialect(
    paths=("/rerank",),
    summary="text-embeddings-inference rerank",
    tag="text-embeddings-inference",
    request=RerankRequest,
    response=list[Rank],
    error=TeiError,
    parse=_parse,
    render=_render,
    format_error=format_error,
)
