"""The metrics of one app, in its own registry: counts of answers, engines, versions and refused questions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from prometheus_client import CollectorRegistry, Counter, ProcessCollector

from cerberank_models.backends.stage_contract import BackendCounts, Scores
from cerberank_models.checkpoint.store.protocol import LABELS, Label
from cerberank_models.config import TunedSchedule
from cerberank_service.call import RankAnswer, Timing
from cerberank_service.errors import REFUSALS, Refusal
from cerberank_service.telemetry.logs import FIELDS
from cerberank_service.telemetry.series import COPY_CAUSES, OUTCOMES, PHASES, Families

logger = logging.getLogger(__name__)

OTHER = "other"
"""The label of every schedule that is not a tuned schedule of the checkpoint."""
NO_VECTORS: Mapping[str, int] = MappingProxyType({})
MOST_NAMES = 200
"""Limit of logged field names for each dialect. Clients choose the names, and must not be able to flood the log."""
LONGEST_NAME = 64
EITHER = ((True, "true"), (False, "false"))


class Metrics:
    """The series of one app; `registry` holds them for Prometheus."""

    def __init__(self) -> None:
        """Register all series."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.families = Families(self.registry)
        self.lifecycle = LifecycleMetrics(self.families)
        self.ignored = IgnoredFields()
        self._refused = {reason: self.families.refused_requests.labels(reason) for reason in REFUSALS}
        self._answers: dict[tuple[str, str], AnswerMetrics] = {}

    def for_model(
        self,
        model: str,
        version: str,
        stages: int,
        *,
        counts: BackendCounts | None = None,
        tuned: Sequence[TunedSchedule] = (),
    ) -> EngineMetrics:
        """Create the series of a version and return those of its engine.

        `counts` are the backend's counts so far, from golden questions and warm-up, which the series leave out.
        """
        schedules = tuple(dict.fromkeys([*(label_of(entry.schedule) for entry in tuned), OTHER]))
        metrics = tuple(dict.fromkeys(name for entry in tuned for name in entry.metrics))
        self.families.create(
            model=[model],
            version=[version],
            stage=[str(stage) for stage in range(stages)],
            schedule=schedules,
            metric=metrics,
        )
        self._answers[model, version] = AnswerMetrics(
            self.families, model, version, schedules=schedules, metrics=metrics
        )
        return EngineMetrics(self.families, model, version, stages, counts or BackendCounts())

    def for_key(self, key: str) -> None:
        """Create the series of an API key, by its id."""
        self.families.create(key=[key])

    def forget(self, model: str, version: str) -> None:
        """Remove a version's series when it is unloaded."""
        self._answers.pop((model, version), None)
        self.families.remove(model=model, version=version)

    def answered(
        self,
        answer: RankAnswer,
        exemplar: Mapping[str, str] | None = None,
        *,
        duplicates: int = 0,
        vectors: Mapping[str, int] = NO_VECTORS,
    ) -> None:
        """See `AnswerMetrics.answered`. Answers of versions that were unloaded in the meantime are not counted."""
        counting = self._answers.get((answer.model, answer.version))
        if counting is not None:
            counting.answered(answer, exemplar, duplicates=duplicates, vectors=vectors)

    def sent(self, answer: RankAnswer, exemplar: Mapping[str, str] | None = None) -> None:
        """Count the times of an answer that the server sends now; see `answered`."""
        counting = self._answers.get((answer.model, answer.version))
        if counting is not None:
            counting.sent(answer.timing, exemplar)

    def refused(self, refusal: Refusal) -> None:
        """Count a question that was refused with 503."""
        self._refused[refusal.reason].inc()

    def count_in_flight(self) -> int:
        """Number of requests in progress."""
        (family,) = self.families.requests_in_flight.collect()
        return int(family.samples[0].value)


class EngineMetrics:
    """The series of one version's engine."""

    def __init__(self, families: Families, model: str, version: str, stages: int, counts: BackendCounts) -> None:
        """Look up the version's child of each series, in lists by stage; `counts` are the backend's counts so far."""
        of, by_stage = (model, version), [str(stage) for stage in range(stages)]
        self._steps = [families.engine_steps.labels(stage, *of) for stage in by_stage]
        self._tokens = [families.tokens.labels(stage, *of) for stage in by_stage]
        self._busy_seconds = [families.engine_busy_seconds.labels(stage, *of) for stage in by_stage]
        self._recomputed = [families.recomputed_tokens.labels(stage, *of) for stage in by_stage]
        self._dropped = [families.dropped_candidates.labels(stage, *of) for stage in by_stage]
        self._seconds_per_token = [families.seconds_per_token.labels(stage, *of) for stage in by_stage]
        self._padding_tokens = families.padding_tokens.labels(*of)
        self._state_bytes = families.state_bytes.labels(*of)
        self._out_of_memory = families.out_of_memory.labels(*of)
        self._cancelled = families.cancelled_requests.labels(*of)
        self._failed = families.failed_questions.labels(*of)
        self._wasted = families.wasted_tokens.labels(*of)
        self._step_tokens = families.step_tokens
        self._offered = {outcome: families.offered_seconds.labels(outcome) for outcome in OUTCOMES}
        self._graph_families = (families.graph_hits, families.graph_misses)
        self._graphs: list[Counter] = []
        """The counters of CUDA graphs, once there was one."""
        self._of, self._counts = of, counts

    def step(self, stage: int, *, tokens: int, seconds: float, counts: BackendCounts) -> None:
        """Count one batch, and the backend's changes since the last batch; `counts` are the backend's sums."""
        self._steps[stage].inc()
        self._tokens[stage].inc(tokens)
        self._busy_seconds[stage].inc(max(0.0, seconds))
        self._padding_tokens.inc(counts.padding_tokens - self._counts.padding_tokens)
        hits, misses = counts.graph_hits - self._counts.graph_hits, counts.graph_misses - self._counts.graph_misses
        if hits or misses:
            self._graphs = self._graphs or [family.labels(*self._of) for family in self._graph_families]
            for counter, count in zip(self._graphs, (hits, misses), strict=True):
                counter.inc(count)
        self._counts = counts

    def offered(self, seconds: float, *, accepted: bool) -> None:
        """Count the predicted compute seconds of a question that was accepted or refused."""
        self._offered["accepted" if accepted else "refused"].inc(seconds)

    def recomputed(self, stage: int, tokens: int) -> None:
        """Count tokens that were recomputed because their states were evicted."""
        self._recomputed[stage].inc(tokens)

    def held(self, size: int) -> None:
        """Set the bytes of waiting hidden states."""
        self._state_bytes.set(size)

    def out_of_memory(self) -> None:
        """Count a batch that did not fit into memory."""
        self._out_of_memory.inc()

    def failed(self) -> None:
        """Count a question that ended in an internal error."""
        self._failed.inc()

    def cancelled(self) -> None:
        """Count a question whose client has disconnected."""
        self._cancelled.inc()

    def question_done(self, dropped: Iterable[tuple[int, int]], *, wasted: int) -> None:
        """Count a question's dropped candidates, as (stage, candidates), and its tokens (`wasted`) if it failed."""
        for stage, count in dropped:
            self._dropped[stage].inc(count)
        self._wasted.inc(wasted)

    def speeds(self, seconds_per_token: Iterable[float], step_tokens: int) -> None:
        """Set each stage's measured seconds per token, and the step limit in tokens."""
        for gauge, seconds in zip(self._seconds_per_token, seconds_per_token, strict=True):
            gauge.set(seconds)
        self._step_tokens.set(step_tokens)


class AnswerMetrics:
    """Keeps the version's child of each series, so that counting an answer needs no lookup by labels."""

    def __init__(
        self, families: Families, model: str, version: str, *, schedules: Sequence[str], metrics: Sequence[str]
    ) -> None:
        """`schedules` are the labels of the version's schedules and `OTHER`; `metrics` those with an expected loss."""
        of = (model, version)
        self._phases = {phase: families.request_phase_seconds.labels(phase, *of) for phase in PHASES}
        self._candidates = families.request_candidates.labels(*of)
        self._requests = {complete: families.requests.labels(name, *of) for complete, name in EITHER}
        self._schedules = {schedule: families.schedules.labels(schedule, *of) for schedule in schedules}
        self._expected_loss = {metric: families.expected_loss_points.labels(metric, *of) for metric in metrics}
        self._duplicates = families.duplicate_candidates.labels(*of)
        self._vectors, self._of = families.vectors, of
        self._truncated = families.truncated_candidates.labels(*of)
        self._agreement = {agree: families.head_agreement.labels(name, *of) for agree, name in EITHER}
        self._answerable = families.answerable.labels(*of)
        self._top_score = families.top_score.labels(*of)
        self._top_score_squares = families.top_score_squares.labels(*of)

    def answered(
        self,
        answer: RankAnswer,
        exemplar: Mapping[str, str] | None,
        *,
        duplicates: int = 0,
        vectors: Mapping[str, int] = NO_VECTORS,
    ) -> None:
        """Count one answer; `exemplar` has its trace id.

        `duplicates` is the number of candidates that were not run because they equal another one. `vectors` are the
        numbers of texts that a first stage read, by the source of their vectors.
        """
        example = dict(exemplar) if exemplar else None
        self._candidates.observe(len(answer.scores))
        self._requests[answer.complete].inc()
        self._schedules.get(label_of(answer.drop_schedule), self._schedules[OTHER]).inc()
        for metric, points in self._expected_loss.items():
            points.inc(max(0.0, answer.expected_loss.get(metric, 0.0)))
        self._duplicates.inc(duplicates)
        for source, texts in vectors.items():
            self._vectors.labels(source, *self._of).inc(texts)
        self._truncated.inc(int(answer.truncated.sum()))
        if (agree := heads_agree(answer.heads)) is not None:
            self._agreement[agree].inc()
        if answer.calibrated is not None and answer.calibrated.answerable is not None:
            self._answerable.observe(answer.calibrated.answerable, example)
        if (score := top_score(answer)) is not None:
            self._top_score.observe(score, example)
            self._top_score_squares.inc(score * score)

    def sent(self, timing: Timing, exemplar: Mapping[str, str] | None) -> None:
        """Count the phases of an answer."""
        example = dict(exemplar) if exemplar else None
        for phase, seconds in self._phases.items():
            seconds.observe(getattr(timing, phase) / 1000.0, example)


class LifecycleMetrics:
    """Counts rejected versions and label moves, and reports whether the store can be read."""

    def __init__(self, families: Families) -> None:
        """Start with a store that can be read."""
        self._rejected = families.rejected_versions
        self._copies = {cause: families.copy_failures.labels(cause) for cause in COPY_CAUSES}
        self._flips = {label: families.label_flips.labels(label) for label in LABELS}
        self._reachable = families.store_reachable
        self._was_reached = True
        self._reachable.set(1)

    def rejected(self, reason: str, model: str, version: str) -> None:
        """Count a rejection of a version."""
        self._rejected.labels(reason, model, version).inc()

    def forget(self, model: str, version: str) -> None:
        """Remove the rejections of a version that nothing asks for any more, or that fits into memory now."""
        self._rejected.remove_by_labels({"model": model, "version": version})

    def copy_failed(self, cause: str) -> None:
        """Count a copy that failed and will be retried. Raises KeyError for an unknown cause."""
        self._copies[cause].inc()

    def flipped(self, label: Label) -> None:
        """Count a label move."""
        self._flips[label].inc()

    def reached(self, reached: bool) -> bool:
        """Record whether the store could be read; returns True if this has changed."""
        self._reachable.set(reached)
        changed, self._was_reached = reached != self._was_reached, reached
        return changed


class IgnoredFields:
    """Logs the name of each ignored field once for each dialect."""

    def __init__(self) -> None:
        """Start without any logged names."""
        self._logged = dict[str, set[str]]()

    def saw(self, dialect: str, names: Iterable[str]) -> None:
        """Log new names among the ignored fields of one request. They come from a client and may be any text."""
        logged = self._logged.setdefault(dialect, set())
        for name in names:
            seen = name[:LONGEST_NAME]
            if seen not in logged and len(logged) < MOST_NAMES:
                logged.add(seen)
                logger.warning(
                    "a field of other services has no effect here", extra={FIELDS: {"dialect": dialect, "field": seen}}
                )


def label_of(schedule: Sequence[float]) -> str:
    """The label of a schedule in the metrics.

    >>> label_of((0.3, 0.5))
    '0.3,0.5'
    """
    return ",".join(f"{ratio:g}" for ratio in schedule)


def heads_agree(heads: Scores | None) -> bool | None:
    """True if all heads rank the same candidate first; None with fewer than two heads or scored candidates.

    `heads` has shape [n, k], with NaN for candidates that no head scored. A tie does not count as a disagreement.
    """
    if heads is None:
        return None
    seen = heads[~np.isnan(heads[:, 0])]
    if min(seen.shape) < 2:
        return None
    return bool((seen == seen.max(axis=0)).all(axis=1).any())


def top_score(answer: RankAnswer) -> float | None:
    """The score of the first candidate; None if the deadline passed before any candidate was scored."""
    score = float(answer.told[answer.order[0]])
    return None if np.isnan(score) else score
