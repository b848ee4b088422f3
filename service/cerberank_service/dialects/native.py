"""The native dialect, `POST /v1/rank`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cerberank_models.windows import Windowing
from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.native_schema import RankRequest, RankResponse
from cerberank_service.dialects.wire import Document, validate
from cerberank_service.errors import ErrorBody, Kind, ServiceError, native_body

ELSEWHERE = {"documents": "/v1/rerank", "texts": "/rerank", "passages": "/v1/ranking"}
"""The paths of other dialects, by the field that only their bodies have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseOptions:
    """A request's options for its answer; `texts` is None unless texts are to be returned."""

    ids: tuple[str | int | None, ...]
    texts: tuple[str, ...] | None
    heads: bool
    min_score: float | None


def parse(document: Document) -> tuple[RankCall, ResponseOptions]:
    """The call and the response options of a document. Raises ServiceError (422)."""
    _check_path(document)
    request = validate(RankRequest, document)
    call = RankCall(
        question=request.question,
        candidates=request.texts(),
        model=request.model,
        top_k=request.top_k,
        drop_ratio=request.ratios,
        deadline_ms=request.deadline_ms,
        latency_target_ms=request.latency_target_ms,
        priority=request.priority,
        min_precision=request.min_precision,
        windowing=None if request.windows == "off" else Windowing(combine=request.windows),
        instruction=request.instruction or None,
    )
    options = ResponseOptions(
        ids=request.ids,
        texts=tuple(candidate.text for candidate in call.candidates) if request.return_text else None,
        heads=request.return_heads,
        min_score=request.min_score,
    )
    return call, options


def _check_path(document: Document) -> None:
    """Raises ServiceError (422), which names the right path, for a body of another dialect."""
    if "question" not in document.fields and "query" in document.fields:
        for field, path in ELSEWHERE.items():
            if field in document.fields:
                raise ServiceError(
                    Kind.INVALID,
                    f"query, {field}: this path takes question and candidates; send a body with these fields to {path}",
                    reason="body of another dialect",
                )


def render(answer: RankAnswer, options: ResponseOptions) -> dict[str, Any]:
    """The answer as JSON-ready values in the shape of RankResponse."""
    return {
        "id": answer.request_id,
        "model": answer.model,
        "version": answer.version,
        "drop_schedule": list(answer.drop_schedule),
        "expected_loss": dict(answer.expected_loss),
        "complete": answer.complete,
        "answerable": None if answer.calibrated is None else answer.calibrated.answerable,
        "results": [_result(answer, options, index) for index in _shown(answer, options.min_score)],
        "usage": {"candidates": len(answer.scores), "tokens": answer.tokens},
        "timing_ms": {
            "encode": round(answer.timing.encode, 3),
            "queue": round(answer.timing.queue, 3),
            "compute": round(answer.timing.compute, 3),
            "total": round(answer.timing.total, 3),
        },
        "warnings": list(answer.warnings),
    }


def _shown(answer: RankAnswer, min_score: float | None) -> list[int]:
    """The entries of `order` whose reported score reaches both `min_score` and the score for `min_precision`.

    The precision is defined for first results: if the first one's score is too low, the list is empty.
    """
    order: list[int] = answer.order.tolist()
    bounds = [bound for bound in (min_score, answer.least) if bound is not None]
    if answer.least is not None and not answer.told[order[0]] >= answer.least:
        return []
    return [index for index in order if float(answer.told[index]) >= max(bounds)] if bounds else order


def _result(answer: RankAnswer, options: ResponseOptions, index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "index": index,
        "score": None if np.isnan(answer.scores[index]) else float(answer.told[index]),
        "stage": int(answer.stages[index]),
        "truncated": bool(answer.truncated[index]),
    }
    if answer.calibrated is not None and result["score"] is not None:
        result["raw_score"] = float(answer.scores[index])
    if (window := answer.window(index)) is not None:
        result["window"] = dict(zip(("start", "end"), window, strict=True))
    if (name := options.ids[index]) is not None:
        result["id"] = name
    if options.heads and answer.heads is not None and not np.isnan(answer.heads[index, 0]):
        result["heads"] = answer.heads[index].tolist()
    if options.texts is not None:
        result["text"] = options.texts[index]
    return result


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, Any]]:
    """The kind's status and the native error body."""
    return error.kind.value, native_body(error, request_id)


NATIVE = Dialect(
    paths=("/v1/rank",),
    summary="Rank candidates for a question",
    tag="cerberank",
    request=RankRequest,
    response=RankResponse,
    error=ErrorBody,
    parse=parse,
    render=render,
    format_error=format_error,
)
