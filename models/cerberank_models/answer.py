"""The answer to a question, which rankers in this process and clients of a service both return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One candidate in an answer."""

    index: int
    """The candidate's place in the request's list of candidates, counted from 0."""
    score: float | None
    """P(the candidate answers the question) by the last stage that scored it; None if no stage did, because the lexical
    layer dropped it or a deadline passed before."""
    stage: int
    """The stage that gave the score, counted from 0, or -1. A result of a later stage ranks above one of an earlier."""
    truncated: bool = False
    """True if the end of the candidate's text was not read."""
    raw_score: float | None = None
    """The network's score before calibration; None for a model that is not calibrated."""
    lexical_score: float | None = None
    """The BM25 score of a candidate that the lexical layer dropped before any stage; None for all others."""
    text: str | None = None
    id: str | int | None = None
    """The caller's id for the candidate."""
    heads: tuple[float, ...] | None = None
    """The score of each head; None for a model without heads and for a candidate that an exit dropped."""
    metadata: Mapping[str, Any] | None = None
    """The caller's metadata of the candidate, as they came."""
    window: tuple[int, int] | None = None
    """The window of a long text with the highest score, as `text[start:end]`; None if the text fits into one pair."""

    def to_json(self) -> dict[str, Any]:
        """The values in the shape of a result of `/v1/rank`."""
        values: dict[str, Any] = {
            "index": self.index,
            "score": self.score,
            "stage": self.stage,
            "truncated": self.truncated,
        }
        if self.raw_score is not None:
            values["raw_score"] = self.raw_score
        if self.lexical_score is not None:
            values["lexical_score"] = self.lexical_score
        if self.id is not None:
            values["id"] = self.id
        if self.metadata is not None:
            values["metadata"] = self.metadata
        if self.heads is not None:
            values["heads"] = list(self.heads)
        if self.window is not None:
            values["window"] = dict(zip(("start", "end"), self.window, strict=True))
        if self.text is not None:
            values["text"] = self.text
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Result:
        """The result with these values. Raises KeyError for one without index, score or stage."""
        window, heads = values.get("window"), values.get("heads")
        return cls(
            index=values["index"],
            score=values["score"],
            stage=values["stage"],
            truncated=values.get("truncated", False),
            raw_score=values.get("raw_score"),
            lexical_score=values.get("lexical_score"),
            text=values.get("text"),
            id=values.get("id"),
            metadata=values.get("metadata"),
            heads=None if heads is None else tuple(heads),
            window=None if window is None else (window["start"], window["end"]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer(Sequence[Result]):
    """The results of one question, best first, as a sequence with fields that say how they were computed."""

    results: tuple[Result, ...]
    model: str
    version: str
    drop_schedule: tuple[float, ...] = ()
    """The drop ratio of each exit."""
    lexical_ratio: float = 0.0
    """The share of the candidates that the lexical layer was to drop before the first stage."""
    complete: bool = True
    """False if a deadline ended the ranking before the last stage; the order is then that of the stages that ran."""
    answerable: float | None = None
    """P(any candidate answers the question); None if the model is not calibrated, or gave no score."""
    candidates: int = 0
    """The number of candidates in the request; `results` may hold fewer."""
    tokens: int = 0
    """The number of tokens that were read."""
    warnings: tuple[str, ...] = ()
    """Sentences on texts that were not read whole, on texts in other languages, and on options without effect."""
    id: str | int | None = None
    """From a service: the id of the request, which is also in the log. From a local ranking: the caller's id."""
    timing_ms: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds by part of the work; empty for a local ranking."""

    @overload
    def __getitem__(self, place: int) -> Result: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Result, ...]: ...
    def __getitem__(self, place: int | slice) -> Result | tuple[Result, ...]:
        """The result at a place in the ranking; 0 is the best."""
        return self.results[place]

    def __len__(self) -> int:
        """The number of results."""
        return len(self.results)

    def __iter__(self) -> Iterator[Result]:
        """The results, best first."""
        return iter(self.results)

    def to_json(self) -> dict[str, Any]:
        """The values in the shape of an answer of `/v1/rank`, without `timing_ms`."""
        return ({} if self.id is None else {"id": self.id}) | {
            "model": self.model,
            "version": self.version,
            "drop_schedule": list(self.drop_schedule),
            "lexical_ratio": self.lexical_ratio,
            "complete": self.complete,
            "answerable": self.answerable,
            "results": [result.to_json() for result in self.results],
            "usage": {"candidates": self.candidates, "tokens": self.tokens},
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Answer:
        """The answer with these values of `/v1/rank`. Raises KeyError for a value that is missing."""
        return cls(
            results=tuple(map(Result.from_json, values["results"])),
            model=values["model"],
            version=values["version"],
            drop_schedule=tuple(values["drop_schedule"]),
            lexical_ratio=values.get("lexical_ratio", 0.0),
            complete=values["complete"],
            answerable=values.get("answerable"),
            candidates=values["usage"]["candidates"],
            tokens=values["usage"]["tokens"],
            warnings=tuple(values.get("warnings", ())),
            id=values.get("id"),
            timing_ms=values.get("timing_ms", {}),
        )
