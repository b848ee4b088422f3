"""Voyage's rerank API, as the `voyageai` SDK calls it.

On the shared path `/v1/rerank` this dialect is recognised by `truncation`, which the Python SDK always sends, by
`top_k`, or by the name of a Voyage model. A body without any of these gets Cohere's answer, which has Voyage's `data`
as well, as Voyage's has Cohere's `results`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from cerberank_models.encoding import Candidate
from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_models.request import QuestionText, Wire
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.wire import Document, Flag, Items, Top, VendorWire, validate
from cerberank_service.errors import ServiceError

MODEL = re.compile(r"rerank-(lite-)?\d")
"""The names of Voyage's models, such as `rerank-2.5-lite`; Cohere's have a letter first, as in `rerank-v3.5`."""


class VoyageRerank(VendorWire):
    """Voyage's request."""

    model: str
    query: QuestionText
    documents: Annotated[list[str], Items]
    top_k: Top = None
    return_documents: Flag | None = None
    truncation: Annotated[
        Flag | None,
        Field(
            description="False refuses texts that cannot be read to their ends in windows; true, which Voyage's client "
            "always sends, has no effect."
        ),
    ] = None


class VoyageResult(Wire):
    """One result of the answer."""

    index: int
    relevance_score: float
    document: str | None = None


class VoyageAnswer(Wire):
    """Voyage's answer, best first."""

    object: Literal["list"]
    data: list[VoyageResult]
    results: Annotated[
        list[VoyageResult], Field(description="As `data`, for clients that send `top_k` and read Cohere's answer.")
    ]
    model: str
    usage: dict[str, int]


def _parse(document: Document) -> tuple[RankCall, VoyageRerank]:
    request = validate(VoyageRerank, document)
    call = RankCall(
        question=request.query,
        candidates=tuple(Candidate(text=text) for text in request.documents),
        model=request.model,
        top_k=request.top_k,
        refuse_truncation=request.truncation is False,
    )
    return call, request


def _render(answer: RankAnswer, request: VoyageRerank) -> dict[str, Any]:
    data = []
    for index, score in zip(answer.order.tolist(), answer.falling_scores().tolist(), strict=True):
        result: dict[str, Any] = {"index": index, "relevance_score": score}
        if request.return_documents:
            result["document"] = request.documents[index]
        data.append(result)
    usage = {"total_tokens": answer.tokens}
    return {"object": "list", "data": data, "results": data, "model": request.model, "usage": usage}


class VoyageError(Wire):
    """Voyage's error body."""

    detail: str


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """Voyage's error body, `detail`; the SDK maps the status to its own exception types."""
    return error.kind.value, {"detail": error.message}


def _matches(fields: Mapping[str, Any]) -> bool:
    return "truncation" in fields or "top_k" in fields or MODEL.match(str(fields.get("model"))) is not None


RERANK = Dialect(
    paths=("/v1/rerank", "/voyage/v1/rerank"),
    summary="Voyage rerank",
    tag="voyage",
    request=VoyageRerank,
    response=VoyageAnswer,
    error=VoyageError,
    parse=_parse,
    render=_render,
    format_error=format_error,
    matches=_matches,
)
