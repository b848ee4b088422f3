"""vLLM's `/score`: the scores of one query's texts, in the order of the texts.

vLLM can also pair n queries with n texts; here a request has one question, so the n queries must be equal.
"""

from __future__ import annotations

import time
from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from cerberank_models.encoding import Candidate
from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_models.request import Wire, not_blank
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.vllm import (
    Common,
    Texts,
    VllmError,
    format_error,
    scores_of,
    texts_of,
    usage_of,
    windowing_of,
)
from cerberank_service.dialects.wire import Document, validate

PAIRS = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
"""The names of the two fields, query and texts, in the different versions of vLLM's API."""


class VllmScore(Common):
    """vLLM's score request: one query and its texts, under any of the names that vLLM knows."""

    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None
    text_1: Texts | None = None
    text_2: Texts | None = None

    @model_validator(mode="after")
    def _one_pair(self) -> VllmScore:
        names = {name for pair in PAIRS for name in pair if getattr(self, name) is not None}
        if names not in [set(pair) for pair in PAIRS]:
            others = ", or ".join(f"{left} and {right}" for left, right in PAIRS[:-1])
            raise ValueError(f"must have text_1 (the query) and text_2 (the texts), or {others}")
        queries, texts = (texts_of(side) for side in self.sides())
        if len(queries) not in (1, len(texts)):
            raise ValueError(f"{len(queries)} queries cannot be paired with {len(texts)} texts")
        if len(set(queries)) > 1:
            raise ValueError("must hold one query: send a request for each")
        not_blank(queries[0])
        return self

    def sides(self) -> tuple[str | list[str], str | list[str]]:
        """The query and the texts, each as one text or a list."""
        pairs = ((getattr(self, left), getattr(self, right)) for left, right in PAIRS)
        return next(pair for pair in pairs if None not in pair)


class VllmScored(Wire):
    """One text's score."""

    index: int
    object: Literal["score"]
    score: float


class VllmScoreAnswer(Wire):
    """The answer of `/score`, in the order of the request."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[VllmScored]
    usage: dict[str, int]


def _parse_score(document: Document) -> tuple[RankCall, VllmScore]:
    request = validate(VllmScore, document)
    queries, texts = request.sides()
    candidates = tuple(Candidate(text=text) for text in texts_of(texts))
    call = RankCall(
        question=texts_of(queries)[0],
        candidates=candidates,
        model=request.model,
        windowing=windowing_of(request),
        most_tokens=request.max_tokens_per_doc,
    )
    return call, request


def _render_score(answer: RankAnswer, request: VllmScore) -> dict[str, Any]:
    scores = np.empty(len(answer.order))
    scores[answer.order] = scores_of(answer, request)
    return {
        "id": f"score-{answer.request_id}",
        "object": "list",
        "created": int(time.time()),
        "model": answer.model,
        "data": [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores.tolist())],
        "usage": usage_of(answer),
    }


SCORE = Dialect(
    paths=("/score", "/v1/score"),
    summary="vLLM score",
    tag="vllm",
    request=VllmScore,
    response=VllmScoreAnswer,
    error=VllmError,
    parse=_parse_score,
    render=_render_score,
    format_error=format_error,
)
