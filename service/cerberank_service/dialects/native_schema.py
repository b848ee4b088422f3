"""The native wire format: the request and the answer of `POST /v1/rank`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, JsonValue, Tag

from cerberank_service.dialects.wire import Few, Items, QuestionText, Wire, candidate_kind

Ratio = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]

EXAMPLE: JsonValue = {
    "question": "How tall is the Eiffel Tower?",
    "candidates": [
        "The Eiffel Tower was built for the World's Fair of 1889.",
        "With its antennas the Eiffel Tower is 330 metres tall.",
        {"id": "s3", "text": "It was painted again last year.", "previous": "The tower is made of iron."},
    ],
    "top_k": 2,
}


def _id_kind(value: Any) -> str:
    return "<text>" if isinstance(value, str) else "<number>"


IdIn = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[int, Field(ge=-(2**63), lt=2**64), Tag("<number>")],
    Discriminator(_id_kind),
]
"""A candidate's id, such as a database key: a text, or an integer of 64 bits."""


class CandidateObject(Wire):
    """A candidate with the caller's id and its neighbouring sentences."""

    id: IdIn | None = None
    text: str
    previous: str = ""
    next: str = ""


def _ratio_kind(value: Any) -> str:
    return "<list>" if isinstance(value, list | tuple) else "<number>"


CandidateIn = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[CandidateObject, Tag("<object>")], Discriminator(candidate_kind)
]
DropRatioIn = Annotated[
    Annotated[Ratio, Tag("<number>")] | Annotated[list[Ratio], Few, Tag("<list>")], Discriminator(_ratio_kind)
]


class RankRequest(Wire):
    """A question and its candidates."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    question: Annotated[QuestionText, Field(description="The question; it must not be blank.")]
    candidates: Annotated[
        list[CandidateIn],
        Items,
        Field(description="Texts, or objects with id, text, previous and next."),
    ]
    model: Annotated[str | None, Field(description="Name of the model; the default model if left out.")] = None
    top_k: Annotated[int | None, Field(ge=1, description="Results to return; all when left out.")] = None
    min_score: Annotated[
        float | None,
        Field(
            allow_inf_nan=False,
            description="Leave out results whose `score` is lower or null; applied last, after `top_k`.",
        ),
    ] = None
    min_precision: Annotated[
        float | None,
        Field(
            gt=0.0,
            lt=1.0,
            description="Leave out results whose `score` is below the model's threshold for this precision of first "
            "results (`calibration` in `/v1/models`); only for calibrated models.",
        ),
    ] = None
    drop_ratio: Annotated[
        DropRatioIn | None,
        Field(description="Share of the candidates that each exit drops: one number, or one per exit."),
    ] = None
    deadline_ms: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="Answer after this time, with the best order known by then."),
    ] = None
    latency_target_ms: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False, description="Use the tuned schedule that drops least and meets this time."),
    ] = None
    windows: Annotated[
        Literal["best", "mean", "off"],
        Field(
            description="Read a long text in overlapping windows; its score is that of the best window, or the mean. "
            "`off` cuts the text."
        ),
    ] = "best"
    priority: Annotated[int, Field(ge=0, le=999, description="0 is the highest; a hundred more halve the share.")] = 0
    instruction: Annotated[
        str | None, Field(description="The task in words, for models with a prompt; others refuse it.")
    ] = None
    return_text: Annotated[bool, Field(description="Repeat each candidate's text in the answer.")] = False
    return_heads: Annotated[bool, Field(description="Give each head's probability.")] = False


class Window(Wire):
    """A part of a candidate's text, in Unicode code points: `text[start:end]` in Python."""

    start: Annotated[int, Field(description="Its first code point.")]
    end: Annotated[int, Field(description="The code point behind its last one.")]


class Result(Wire):
    """The result of one candidate."""

    index: Annotated[int, Field(description="The candidate's place in the request.")]
    id: Annotated[str | int | None, Field(description="Its id, if it came with one.")] = None
    score: Annotated[
        float | None,
        Field(description="P(the candidate answers) at the stage reached, 0..1; null before any."),
    ]
    raw_score: Annotated[float | None, Field(description="The network's own score; only of a calibrated model.")] = None
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
            description="P(at least one candidate answers); null if not calibrated, or if a deadline came before the "
            "last stage."
        ),
    ]
    results: list[Result]
    usage: Usage
    timing_ms: TimingMs
    warnings: list[str]
