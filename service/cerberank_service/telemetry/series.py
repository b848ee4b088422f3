"""All series of the service, each declared once here.

The number of label values is bounded: only served models and versions and their stages occur, and kinds and phases are
fixed. `python -m cerberank_service.telemetry.series` prints the table of docs/metrics.md.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from cerberank_models.checkpoint.store.contract import LABELS
from cerberank_service.errors import Kind

PREFIX = "cerberank_"
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CANDIDATES = (1, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
SCORES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
PHASES = ("encode", "queue", "compute", "total")
COPY_CAUSES = ("store", "disk", "time", "process")
"""Causes of a failed copy of a version:

- store: an error of the store;
- disk: no space for the copy;
- time: the time limit;
- process: the copying process failed, or processes, threads, descriptors or memory are short.
"""
VECTOR_SOURCES = ("cache", "store", "computed")
OUTCOMES = ("accepted", "refused")
VERSION = ("model", "version")
"""The labels of series that are created and removed with a version."""

FIXED: Mapping[str, Sequence[str]] = {
    "phase": PHASES,
    "complete": ("true", "false"),
    "agree": ("true", "false"),
    "kind": tuple(kind.label for kind in Kind),
    "label": LABELS,
    "cause": COPY_CAUSES,
    "source": VECTOR_SOURCES,
    "outcome": OUTCOMES,
}
"""Labels whose values do not depend on versions."""


@dataclass(frozen=True, slots=True)
class Series:
    """One family of series."""

    name: str
    """The name without `PREFIX` and without a counter's suffix `_total`."""
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


class Families:
    """The series that the service updates, in a Prometheus registry; series without labels exist from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:  # noqa: PLR0915 - one statement a series
        """Register every family, and create the children whose label values are fixed."""
        self._registry = registry
        self._families: dict[Series, Counter | Gauge | Histogram] = {}
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self.rejected_versions = counter("rejected_versions", "Versions that failed a check, by reason", "reason")
        self.copy_failures = counter(
            "copy_failures", "Copies of versions that failed and are tried again, by cause", "cause"
        )
        self.label_flips = counter("label_flips", "Labels that moved", "label")
        self.store_reachable = gauge("store_reachable", "1 when the store could be read")
        self.shadow_questions = counter("shadow_questions", "Questions that the shadow was asked as well", *VERSION)
        self.shadow_flips = counter("shadow_flips", "Mirrored questions where another candidate came first", *VERSION)
        self.shadow_overlap = counter("shadow_overlap", "Sum of the mirrored questions' rank-biased overlaps", *VERSION)
        self.shadow_score_shift = counter(
            "shadow_score_shift", "Sum of the mirrored questions' mean absolute differences of scores", *VERSION
        )
        self.shadow_stable_seconds = counter(
            "shadow_stable_seconds", "Compute seconds of the stable version on mirrored questions", *VERSION
        )
        self.shadow_seconds = counter("shadow_seconds", "Compute seconds of the shadow on mirrored questions", *VERSION)
        self.shadow_failures = counter("shadow_failures", "Questions that the shadow could not answer", *VERSION)
        self.shadow_skipped = counter(
            "shadow_skipped", "Questions not mirrored: the service was busy, or the shadow cannot take them", *VERSION
        )
        self.request_phase_seconds = histogram(
            "request_phase_seconds",
            "Latency of answered requests by phase: encode, queue, compute, total",
            SECONDS,
            "phase",
            *VERSION,
        )
        self.request_candidates = histogram(
            "request_candidates", "Candidates of answered requests", CANDIDATES, *VERSION
        )
        self.requests = counter("requests", "Answered requests", "complete", *VERSION)
        self.schedules = counter(
            "schedules", "Answers by drop schedule: the tuned ones, and `other`", "schedule", *VERSION
        )
        self.expected_loss_points = counter(
            "expected_loss_points", "Points that the schedules of all answers are expected to cost", "metric", *VERSION
        )
        self.tokens = counter(
            "tokens", "Tokens run, by stage: those of a dropped candidate up to its exit", "stage", *VERSION
        )
        self.padding_tokens = counter("padding_tokens", "Padding tokens run beside the real ones", *VERSION)
        self.graph_hits = counter("graph_hits", "Runs of a stage that a captured CUDA graph had room for", *VERSION)
        self.graph_misses = counter(
            "graph_misses", "Runs of a stage that no captured CUDA graph had room for", *VERSION
        )
        self.dropped_candidates = counter(
            "dropped_candidates", "Candidates that a stage's exit dropped", "stage", *VERSION
        )
        self.engine_steps = counter("engine_steps", "Batches run, by stage", "stage", *VERSION)
        self.engine_busy_seconds = counter("engine_busy_seconds", "Seconds in batches, by stage", "stage", *VERSION)
        self.recomputed_tokens = counter(
            "recomputed_tokens", "Tokens run again, by stage, because their states were given up", "stage", *VERSION
        )
        self.failed_questions = counter("failed_questions", "Questions that ended in an internal error", *VERSION)
        self.wasted_tokens = counter("wasted_tokens", "Tokens run for questions that got no answer", *VERSION)
        self.cancelled_requests = counter(
            "cancelled_requests", "Questions dropped because their client had gone", *VERSION
        )
        self.state_bytes = gauge("state_bytes", "Hidden states that wait between steps", *VERSION)
        self.out_of_memory = counter(
            "out_of_memory", "Batches that did not fit into memory and were tried again in halves", *VERSION
        )
        self.step_tokens = gauge(
            "step_tokens", "Tokens that a step may hold: halved when memory ran out, and raised again later"
        )
        self.queued_seconds = gauge("queued_seconds", "Predicted seconds until all accepted requests are answered")
        self.seconds_per_token = gauge(
            "seconds_per_token", "Seconds that a stage takes for a token, as measured", "stage", *VERSION
        )
        self.fixed_step_seconds = gauge(
            "fixed_step_seconds",
            "Seconds that a step of a stage takes beside those for its tokens, as measured",
            "stage",
            *VERSION,
        )
        self.truncated_candidates = counter(
            "truncated_candidates", "Candidates that were cut to the token limit", *VERSION
        )
        self.duplicate_candidates = counter("duplicate_candidates", "Candidates answered by an identical one", *VERSION)
        self.vectors = counter(
            "vectors", "Texts that a first stage read, by where their vectors came from", "source", *VERSION
        )
        self.key_requests = counter(
            "key_requests", "Requests let in, by their API key's id (`cerberank server keys list`)", "key"
        )
        self.key_tokens = counter("key_tokens", "Tokens of the pairs of those that were answered", "key")
        self.keys_stale = gauge(
            "keys_stale", "1 while the key file cannot be read, so that a key that was removed still works"
        )
        self.head_agreement = counter(
            "head_agreement",
            "Questions whose heads agree on the first candidate, and those whose do not",
            "agree",
            *VERSION,
        )
        self.top_score = histogram(
            "top_score", "Score of the first candidate, calibrated where the version is", SCORES, *VERSION
        )
        self.answerable = histogram(
            "answerable", "P(any candidate answers), of versions that are calibrated", SCORES, *VERSION
        )
        self.top_score_squares = counter(
            "top_score_squares", "Sum of the squares of first candidates' scores, for their deviation", *VERSION
        )
        self.errors = counter("errors", "Requests answered with an error, by kind", "kind")
        self.refused_requests = counter("refused_requests", "Questions refused with 503, by reason", "reason")
        self.refused_candidates = counter(
            "refused_candidates", "Candidates of those that the engine refused, by reason", "reason"
        )
        self.refused_queue_seconds = histogram(
            "refused_queue_seconds",
            "Predicted time in the queue of questions that the engine refused, by reason",
            SECONDS,
            "reason",
        )
        self.offered_seconds = counter(
            "offered_seconds",
            "Predicted compute seconds of the questions that reached an engine, accepted or refused, but not for their "
            "own deadlines; a rate of 1 is all that a replica can serve",
            "outcome",
        )
        self.ignored_fields = counter(
            "ignored_fields", "Fields of other services' dialects that had no effect here", "dialect"
        )
        self.requests_in_flight = gauge("requests_in_flight", "Requests being handled")
        self.queued_tokens = gauge("queued_tokens", "Tokens of accepted, unanswered requests")
        self.ready = gauge("ready", "1 when the model is ready and serving")
        self.create()

    @property
    def declared(self) -> tuple[Series, ...]:
        """All these series, in the order of their declaration."""
        return tuple(self._families)

    def create(self, **known: Sequence[str]) -> None:
        """Create the children, with the value 0, of every series all of whose labels are in `known` or fixed.

        Existing children keep their values.
        """
        values = {**FIXED, **known}
        for series, family in self._families.items():
            if series.labels and values.keys() >= set(series.labels):
                for child in product(*(values[label] for label in series.labels)):
                    family.labels(*child)

    def remove(self, **values: str) -> None:
        """Remove every child that has these label values."""
        for series, family in self._families.items():
            if values.keys() <= set(series.labels):
                family.remove_by_labels(values)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        family = Counter(PREFIX + name, meaning, labels, registry=self._registry)
        self._families[Series(name, "counter", meaning, labels)] = family
        return family

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        family = Gauge(PREFIX + name, meaning, labels, registry=self._registry)
        self._families[Series(name, "gauge", meaning, labels)] = family
        return family

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        family = Histogram(PREFIX + name, meaning, labels, buckets=buckets, registry=self._registry)
        self._families[Series(name, "histogram", meaning, labels)] = family
        return family


LABELLED_VERSION = Series(
    "labelled_version", "gauge", "1 for the version that a label means", ("model", "label", "version")
)
LABEL_DIFFERS = Series(
    "label_wanted_differs",
    "gauge",
    "1 while a label in the store names another version than serves",
    ("model", "label"),
)
ENGINE_RUNNING = Series(
    "engine_running", "gauge", "1 while a version takes questions, 0 once its engine failed", VERSION
)
STALLED_SECONDS = Series(
    "stalled_seconds", "gauge", "Seconds in which accepted questions have waited without any progress", VERSION
)
CALIBRATED_TOP_SCORE = Series(
    "calibrated_top_score",
    "gauge",
    "Mean score of first candidates on the questions that a version was calibrated on; no sample for other versions",
    VERSION,
)
CALIBRATED_ANSWERABLE = Series(
    "calibrated_answerable",
    "gauge",
    "Mean P(any candidate answers) on the questions that a version was calibrated on; no sample for other versions",
    VERSION,
)
STORE_POLL_AGE = Series(
    "store_poll_age_seconds",
    "gauge",
    "Seconds since a poll of the store ended; it grows while one hangs. No sample without a store",
)
BUILD_INFO = Series(
    "build_info",
    "gauge",
    "1, with the release and what it runs on",
    ("version", "python", "backend", "device", "precision"),
)
VERSION_INFO = Series(
    "version_info",
    "gauge",
    "1 for each version that serves, with the backend and the precision that it was given",
    ("model", "version", "backend", "precision"),
)
DEVICE_MEMORY = Series("device_memory_total_bytes", "gauge", "The GPU's memory; no sample without a GPU and NVML")
DEVICE_MEMORY_USED = Series("device_memory_used_bytes", "gauge", "Memory in use on the GPU, by all of its processes")
DEVICE_UTILISATION = Series(
    "device_utilisation_ratio", "gauge", "Share of the last moment in which a kernel ran on the GPU"
)
TOKEN_CACHE = (
    Series("token_cache_hits", "counter", "Questions, candidates and contexts whose tokens were cached"),
    Series("token_cache_misses", "counter", "Questions, candidates and contexts that were tokenised"),
    Series("token_cache_bytes", "gauge", "Memory of cached tokens"),
)
VECTOR_CACHE = (
    Series("vector_cache_hits", "counter", "Questions and candidates whose vectors were cached"),
    Series("vector_cache_misses", "counter", "Questions and candidates whose vectors were not cached"),
    Series("vector_cache_bytes", "gauge", "Memory of cached vectors"),
)
SCRAPED = (
    LABELLED_VERSION,
    LABEL_DIFFERS,
    ENGINE_RUNNING,
    STALLED_SECONDS,
    CALIBRATED_TOP_SCORE,
    CALIBRATED_ANSWERABLE,
    STORE_POLL_AGE,
    BUILD_INFO,
    VERSION_INFO,
    DEVICE_MEMORY,
    DEVICE_MEMORY_USED,
    DEVICE_UTILISATION,
    *TOKEN_CACHE,
    *VECTOR_CACHE,
)
"""Series whose values are read at each scrape (`collectors.py`)."""


def markdown_table() -> str:
    """Name, type, labels and meaning of each series, including prometheus_client's series about the process."""
    series = (*Families(CollectorRegistry()).declared, *SCRAPED)
    declared = [(PREFIX + each.name, each.kind, sorted(each.labels), each.help) for each in series]
    process: list[tuple[str, str, list[str], str]] = [
        (each.name, each.type, [], each.documentation) for each in ProcessCollector(registry=None).collect()
    ]
    rows = ["| series | type | labels | meaning |", "|---|---|---|---|"]
    for name, kind, labels, meaning in sorted([*declared, *process]):
        shown = ", ".join(f"`{label}`" for label in labels)
        rows.append(f"| `{name}{'_total' if kind == 'counter' else ''}` | {kind} | {shown} | {meaning} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(markdown_table() + "\n")
