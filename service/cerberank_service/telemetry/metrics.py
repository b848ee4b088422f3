"""The metrics of one app, in its own registry: counts of answers, engines, versions and refused questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from cerberank_models.backends.stage_contract import BackendCounts, Scores
from cerberank_models.config import DropSchedule, TunedSchedule
from cerberank_models.ranking.call import RankAnswer
from cerberank_service.errors import REFUSALS
from cerberank_service.telemetry import series
from cerberank_service.telemetry.series import FIXED_VALUES, PHASES, PREFIX, SERIES, VERSION, MetricT, Series

OTHER = "other"
"""The label of every schedule that the checkpoint does not have."""
NO_VECTORS: Mapping[str, int] = MappingProxyType({})
Children = dict[tuple[Series[Any], str], Any]
"""Children by their series and the value of its label that is not of `VERSION`, "" without one."""


class Metrics:
    """The series of one app; `registry` holds them for Prometheus."""

    def __init__(self) -> None:
        """Register all series that the service updates."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._families = {each: self._registered(each) for each in SERIES if not each.scraped}
        self._create()
        for reason in REFUSALS:
            self[series.REFUSED_REQUESTS].labels(reason)
        self[series.STORE_REACHABLE].set(1)
        self._versions: dict[tuple[str, str], VersionMetrics] = {}

    def __getitem__(self, series: Series[MetricT]) -> MetricT:
        """The family of a series that the service updates."""
        family: MetricT = self._families[series]
        return family

    def for_model(
        self,
        model: str,
        version: str,
        stages: int,
        *,
        counts: BackendCounts | None = None,
        defaults: Sequence[DropSchedule] = (),
        tuned: Sequence[TunedSchedule] = (),
    ) -> VersionMetrics:
        """Create the series of a version and return them.

        The checkpoint's schedules `defaults` and `tuned` have labels of their own. `counts` are the backend's counts so
        far, from golden questions and warm-up, which the series leave out.
        """
        labels = (label_of(each.schedule, each.lexical_ratio) for each in (*defaults, *tuned))
        children = self._create(
            model=[model],
            version=[version],
            stage=[str(stage) for stage in range(stages)],
            schedule=tuple(dict.fromkeys([*labels, OTHER])),
            metric=tuple(dict.fromkeys(name for entry in tuned for name in entry.metrics)),
        )
        metrics = VersionMetrics(self, (model, version), children, counts or BackendCounts())
        self._versions[model, version] = metrics
        return metrics

    def for_key(self, key: str) -> None:
        """Create the series of an API key, by its id."""
        self._create(key=[key])

    def for_shadow(self, model: str, version: str) -> None:
        """Create the series of a shadow version, so that the first failure is an increase."""
        for each, family in self._families.items():
            if each.name.startswith("shadow_"):
                family.labels(model, version)

    def forget(self, model: str, version: str) -> None:
        """Remove a version's series when it is unloaded."""
        self._versions.pop((model, version), None)
        for each, family in self._families.items():
            if set(VERSION) <= set(each.labels):
                family.remove_by_labels({"model": model, "version": version})

    def forget_rejections(self, model: str, version: str) -> None:
        """Remove the rejections of a version that nothing asks for any more, or that fits into memory now."""
        self[series.REJECTED_VERSIONS].remove_by_labels({"model": model, "version": version})

    def answered(
        self,
        answer: RankAnswer,
        exemplar: Mapping[str, str] | None = None,
        *,
        duplicates: int = 0,
        vectors: Mapping[str, int] = NO_VECTORS,
    ) -> None:
        """See `VersionMetrics.answered`. Answers of versions that were unloaded in the meantime are not counted."""
        version = self._versions.get((answer.model, answer.version))
        if version is not None:
            version.answered(answer, exemplar, duplicates=duplicates, vectors=vectors)

    def count_in_flight(self) -> int:
        """Number of requests in progress."""
        (family,) = self[series.REQUESTS_IN_FLIGHT].collect()
        return int(family.samples[0].value)

    def _registered(self, series: Series[Any]) -> Any:
        options = {"buckets": series.buckets} if series.buckets else {}
        return series.metric(PREFIX + series.name, series.help, series.labels, registry=self.registry, **options)

    def _create(self, **label_values: Sequence[str]) -> Children:
        """Create the children, with the value 0, of every series all of whose labels are in `label_values` or fixed.

        Existing children keep their values. Series that are created on use are left out.
        """
        values = {**FIXED_VALUES, **label_values}
        children: Children = {}
        for each, family in self._families.items():
            if each.on_use or not values.keys() >= set(each.labels):
                continue
            for row in product(*(values[label] for label in each.labels)):
                label = "" if each.labels in ((), VERSION) else row[0]
                children[each, label] = family.labels(*row) if row else family
        return children


class VersionMetrics:
    """The series of one version: every child is looked up in its family once, so that counting costs little."""

    def __init__(self, metrics: Metrics, version: tuple[str, str], children: Children, counts: BackendCounts) -> None:
        """`children` are those of the version and of the process; `counts` are the backend's counts so far."""
        self._metrics = metrics
        self._version = version
        self._children = children
        self._counts = counts

    def child(self, series: Series[MetricT], label: str = "") -> MetricT:
        """A child by the value of its label other than model and version. Raises KeyError for an unknown one."""
        child: MetricT = self._children[series, label]
        return child

    def step(self, stage: int, *, tokens: int, seconds: float, counts: BackendCounts) -> None:
        """Count one batch, and the backend's changes since the last batch; `counts` are the backend's sums."""
        label = str(stage)
        self.child(series.ENGINE_STEPS, label).inc()
        self.child(series.TOKENS, label).inc(tokens)
        self.child(series.ENGINE_BUSY_SECONDS, label).inc(max(0.0, seconds))
        self.child(series.PADDING_TOKENS).inc(counts.padding_tokens - self._counts.padding_tokens)
        hits = counts.graph_hits - self._counts.graph_hits
        misses = counts.graph_misses - self._counts.graph_misses
        if hits or misses:  # only on a GPU
            self._metrics[series.GRAPH_HITS].labels(*self._version).inc(hits)
            self._metrics[series.GRAPH_MISSES].labels(*self._version).inc(misses)
        self._counts = counts

    def question_done(self, dropped: Iterable[tuple[int, int]], *, wasted: int) -> None:
        """Count a question's dropped candidates, as (stage, candidates), and its tokens (`wasted`) if it failed."""
        for stage, count in dropped:
            self.child(series.DROPPED_CANDIDATES, str(stage)).inc(count)
        self.child(series.WASTED_TOKENS).inc(wasted)

    def speeds(self, seconds_per_token: Iterable[float], step_tokens: int) -> None:
        """Set each stage's measured seconds per token, and the step limit in tokens."""
        for stage, seconds in enumerate(seconds_per_token):
            self.child(series.SECONDS_PER_TOKEN, str(stage)).set(seconds)
        self.child(series.STEP_TOKENS).set(step_tokens)

    def answered(
        self,
        answer: RankAnswer,
        exemplar: Mapping[str, str] | None,
        *,
        duplicates: int,
        vectors: Mapping[str, int],
    ) -> None:
        """Count one answer, which the server sends now; `exemplar` has its trace id.

        `duplicates` is the number of candidates that were not run because they equal another one. `vectors` are the
        numbers of texts that a first stage read, by the source of their vectors.
        """
        child, example = self.child, dict(exemplar) if exemplar else None
        child(series.REQUESTS, _truth(answer.complete)).inc()
        for phase in PHASES:
            seconds = getattr(answer.timing, phase) / 1000.0
            child(series.REQUEST_PHASE_SECONDS, phase).observe(seconds, example)
        child(series.REQUEST_CANDIDATES).observe(len(answer.scores))
        child(series.DUPLICATE_CANDIDATES).inc(duplicates)
        child(series.TRUNCATED_CANDIDATES).inc(int(answer.truncated.sum()))
        if answer.lexical_scores is not None:
            child(series.LEXICAL_DROPPED_CANDIDATES).inc(int(np.count_nonzero(~np.isnan(answer.lexical_scores))))
        for source, texts in vectors.items():
            self._metrics[series.VECTORS].labels(source, *self._version).inc(texts)
        schedule = label_of(answer.drop_schedule, answer.lexical_ratio)
        child(series.SCHEDULES, schedule if (series.SCHEDULES, schedule) in self._children else OTHER).inc()
        for metric, points in answer.expected_loss.items():
            if (series.EXPECTED_LOSS_POINTS, metric) in self._children:
                child(series.EXPECTED_LOSS_POINTS, metric).inc(max(0.0, points))
        agree = heads_agree(answer.heads)
        if agree is not None:
            child(series.HEAD_AGREEMENT, _truth(agree)).inc()
        if answer.calibrated is not None and answer.calibrated.answerable is not None:
            child(series.ANSWERABLE).observe(answer.calibrated.answerable, example)
        score = top_score(answer)
        if score is not None:
            child(series.TOP_SCORE).observe(score, example)
            child(series.TOP_SCORE_SQUARES).inc(score * score)


def _truth(value: bool) -> str:
    """The label of a truth value."""
    return "true" if value else "false"


Sample = tuple[tuple[str, ...], float]
"""A sample: the values of the series' labels, and the number."""


class Scraped(Collector):
    """The series whose values are read at each scrape."""

    def __init__(self, read: Callable[[], Mapping[Series[Any], Iterable[Sample]]]) -> None:
        """`read` is called at each scrape, by the thread that renders the metrics; it neither blocks nor raises."""
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the series with their present samples."""
        for each, samples in self._read().items():
            family = each.metric(PREFIX + each.name, each.help, labels=each.labels)
            for labels, value in samples:
                family.add_metric(labels, value)
            yield family


def label_of(schedule: Sequence[float], lexical: float = 0.0) -> str:
    """The label of a schedule in the metrics.

    >>> label_of((0.3, 0.5)), label_of((0.3, 0.5), 0.2)
    ('0.3,0.5', 'lexical 0.2,0.3,0.5')
    """
    return ",".join([f"lexical {lexical:g}"] * (lexical > 0.0) + [f"{ratio:g}" for ratio in schedule])


def heads_agree(heads: Scores | None) -> bool | None:
    """True if all heads rank the same candidate first; None with fewer than two heads or scored candidates.

    `heads` has shape [n, k], with NaN for candidates that no head scored. A tie does not count as a disagreement.
    """
    if heads is None or heads.shape[1] < 2:
        return None
    columns = np.ascontiguousarray(heads.T)  # numpy reduces many rows of three numbers thirty times as slowly
    if np.count_nonzero(~np.isnan(columns[0])) < 2:
        return None
    best = np.fmax.reduce(columns, axis=1)
    first = columns[:, columns[0] == best[0]]
    return bool((best == first.T).all(axis=1).any())


def top_score(answer: RankAnswer) -> float | None:
    """The score of the first candidate; None without candidates, and if a deadline passed before any was scored."""
    if not len(answer.order):
        return None
    score = float(answer.reported[answer.order[0]])
    return None if np.isnan(score) else score
