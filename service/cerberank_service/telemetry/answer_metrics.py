"""The Prometheus series about the answers of one version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cerberank_service.call import RankAnswer
from cerberank_service.telemetry.quality import heads_agree, top_score
from cerberank_service.telemetry.registration import RegisteredSeries
from cerberank_service.telemetry.series import PHASES, VECTOR_SOURCES

OTHER = "other"
"""The label of every schedule that is not one of the checkpoint's tuned ones."""

NO_VECTORS: Mapping[str, int] = MappingProxyType({})


class AnswerMetrics:
    """Keeps the version's child of each series, so that counting an answer needs no lookup by labels."""

    def __init__(
        self, series: RegisteredSeries, model: str, version: str, *, schedules: Sequence[str], metrics: Sequence[str]
    ) -> None:
        """`schedules` are the labels of the version's schedules and `OTHER`; `metrics` have an expected loss."""
        of = (model, version)
        self._phases = {phase: series.histogram("request_phase_seconds", phase, *of) for phase in PHASES}
        self._candidates = series.histogram("request_candidates", *of)
        self._requests = {complete: series.counter("requests", name, *of) for complete, name in _EITHER}
        self._schedules = {schedule: series.counter("schedules", schedule, *of) for schedule in schedules}
        self._expected_loss = {metric: series.counter("expected_loss_points", metric, *of) for metric in metrics}
        self._duplicates = series.counter("duplicate_candidates", *of)
        self._vectors = {source: series.counter("vectors", source, *of) for source in VECTOR_SOURCES}
        self._truncated = series.counter("truncated_candidates", *of)
        self._agreement = {agree: series.counter("head_agreement", name, *of) for agree, name in _EITHER}
        self._top_score = series.histogram("top_score", *of)
        self._top_score_squares = series.counter("top_score_squares", *of)

    def answered(
        self,
        answer: RankAnswer,
        exemplar: Mapping[str, str] | None,
        *,
        duplicates: int = 0,
        vectors: Mapping[str, int] = NO_VECTORS,
    ) -> None:
        """Count one answer; `exemplar` has its trace id.

        `duplicates` is the number of candidates that were not run because they equal another one, `vectors` those of
        texts that a first stage read, by source.
        """
        example = dict(exemplar) if exemplar else None
        for phase, seconds in self._phases.items():
            seconds.observe(getattr(answer.timing, phase) / 1000.0, example)
        self._candidates.observe(len(answer.scores))
        self._requests[answer.complete].inc()
        self._schedules.get(label_of(answer.drop_schedule), self._schedules[OTHER]).inc()
        for metric, points in self._expected_loss.items():
            points.inc(max(0.0, answer.expected_loss.get(metric, 0.0)))
        self._duplicates.inc(duplicates)
        for source, texts in vectors.items():
            self._vectors[source].inc(texts)
        self._truncated.inc(int(answer.truncated.sum()))
        if (agree := heads_agree(answer.heads)) is not None:
            self._agreement[agree].inc()
        if (score := top_score(answer)) is not None:
            self._top_score.observe(score, example)
            self._top_score_squares.inc(score * score)


_EITHER = ((True, "true"), (False, "false"))


def label_of(schedule: Sequence[float]) -> str:
    """The label of a schedule in the metrics.

    >>> label_of((0.3, 0.5))
    '0.3,0.5'
    """
    return ",".join(f"{ratio:g}" for ratio in schedule)
