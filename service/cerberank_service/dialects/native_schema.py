"""The native wire format: the request and the answer of `POST /v1/rank`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from cerberank_models import request
from cerberank_models.request import CANDIDATES, CandidateIn, Wire
from cerberank_service.dialects.wire import CEILING


class RankRequest(request.RankRequest):
    """A question and its candidates."""

    candidates: Annotated[list[CandidateIn], Field(max_length=CEILING, fail_fast=True), CANDIDATES]


class Window(Wire):
    """A part of a candidate's text, in Unicode code points: `text[start:end]` in Python."""

    start: Annotated[int, Field(description="Its first code point.")]
    end: Annotated[int, Field(description="The code point behind its last one.")]


class Result(Wire):
    """The result of one candidate."""

    index: Annotated[int, Field(description="The candidate's place in the request.")]
    id: Annotated[str | int | None, Field(description="Its id, if it came with one.")] = None
    metadata: Annotated[dict[str, Any] | None, Field(description="Its metadata, if it came with any.")] = None
    score: Annotated[
        float | None,
        Field(description="P(the candidate answers) at the stage reached, 0..1; null before any."),
    ]
    raw_score: Annotated[float | None, Field(description="The network's own score; only of a calibrated model.")] = None
    lexical_score: Annotated[
        float | None, Field(description="Its BM25 score; only if the lexical layer dropped it before any stage.")
    ] = None
    stage: Annotated[int, Field(description="The last stage that scored it, counted from 0; -1 for none.")]
    truncated: Annotated[bool, Field(description="True if its end was not read.")]
    window: Annotated[
        Window | None, Field(description="Its window with the highest score; only of a text that was read in windows.")
    ] = None
    heads: Annotated[list[float] | None, Field(description="Each head's probability, if asked for.")] = None
    text: str | None = None


class Usage(Wire):
    """The size of the request."""

    candidates: int
    tokens: Annotated[int, Field(description="Tokens of all distinct pairs.")]


class TimingMs(Wire):
    """Milliseconds by phase."""

    encode: float
    queue: float
    compute: float
    total: float


class RankResponse(Wire):
    """The candidates, best first; absent optional fields are left out."""

    id: Annotated[str, Field(description="The request id, also in `X-Request-Id`.")]
    model: str
    version: str
    drop_schedule: list[float]
    lexical_ratio: Annotated[
        float, Field(description="Share of the candidates that the lexical layer was to drop before any stage.")
    ]
    expected_loss: Annotated[
        dict[str, float],
        Field(
            description="Loss by the drop schedule, as measured when it was tuned, in points of each metric; empty if "
            "it was not tuned, or if every candidate reached the last stage."
        ),
    ]
    complete: Annotated[bool, Field(description="False when the deadline passed before the last stage.")]
    answerable: Annotated[
        float | None,
        Field(
            description="P(at least one candidate answers), never below a `score`; after a deadline, P(at least one of "
            "those with a score answers). Null if not calibrated, or if a deadline came before any score."
        ),
    ]
    results: list[Result]
    usage: Usage
    timing_ms: TimingMs
    warnings: list[str]
