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

from cerberank_models.checkpoint.store.protocol import LABELS
from cerberank_service.errors import Kind

PREFIX = "cerberank_"
SECONDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15),
    *(0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0),
)
CANDIDATES = (1, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
SCORES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
PHASES = ("encode", "queue", "compute", "rest", "total")
COPY_CAUSES = ("store", "disk", "time", "process")
"""Causes of a failed copy of a version:

- store: an error of the store;
- disk: no space for the copy;
- time: the time limit;
- process: the copying process failed, or processes, threads, descriptors or memory are short.
"""
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
        self._on_use: set[Series] = set()
        """Families that most versions never use: a child is created when it is first counted."""
        counter, gauge, histogram, used = self._counter, self._gauge, self._histogram, self._used
        self.rejected_versions = counter(
            "rejected_versions",
            "Rejections of a version that failed a check, by reason; kept until nothing asks for the version any more",
            "reason",
            *VERSION,
        )
        self.copy_failures = counter(
            "copy_failures", "Failed attempts to copy a version, which are repeated, by cause", "cause"
        )
        self.label_flips = counter("label_flips", "Changes of the version that a label has on this replica", "label")
        self.store_reachable = gauge("store_reachable", "1 when the last read of the store succeeded, 0 when it failed")
        self.shadow_questions = used(
            "shadow_questions", "Questions that were also sent to the shadow version and compared", *VERSION
        )
        self.shadow_flips = used(
            "shadow_flips", "Compared questions for which the shadow ranks another candidate first", *VERSION
        )
        self.shadow_overlap = used(
            "shadow_overlap", "Sum of the rank-biased overlaps of both rankings over the compared questions", *VERSION
        )
        self.shadow_stable_seconds = used(
            "shadow_stable_seconds", "Compute seconds of the stable version for the compared questions", *VERSION
        )
        self.shadow_seconds = used(
            "shadow_seconds", "Compute seconds of the shadow version for the compared questions", *VERSION
        )
        self.shadow_failures = used("shadow_failures", "Questions that the shadow version failed to answer", *VERSION)
        self.shadow_skipped = used(
            "shadow_skipped",
            "Questions that were chosen for the shadow version but not sent to it, because the service was busy or the "
            "shadow cannot answer them",
            *VERSION,
        )
        self.request_phase_seconds = histogram(
            "request_phase_seconds",
            "Latency of answered questions by phase: encode, queue, compute, rest (waits for threads, and the answer's "
            "bytes), and total, from the complete body until the server gets the answer",
            SECONDS,
            "phase",
            *VERSION,
        )
        self.request_candidates = histogram(
            "request_candidates", "Candidates of each answered question", CANDIDATES, *VERSION
        )
        self.requests = counter(
            "requests",
            "Answered questions; `complete` is false if a deadline ended the ranking early",
            "complete",
            *VERSION,
        )
        self.schedules = counter(
            "schedules",
            "Answered questions by drop schedule: one of the tuned schedules, or `other`",
            "schedule",
            *VERSION,
        )
        self.expected_loss_points = counter(
            "expected_loss_points",
            "Points of this quality metric that the drop schedules are expected to lose, summed over all answers",
            "metric",
            *VERSION,
        )
        self.tokens = counter(
            "tokens",
            "Computed tokens by stage; a dropped candidate counts in the stages up to its drop",
            "stage",
            *VERSION,
        )
        self.padding_tokens = counter(
            "padding_tokens", "Computed padding tokens, which `cerberank_tokens_total` does not contain", *VERSION
        )
        self.graph_hits = used(
            "graph_hits", "Computations of a stage on a GPU that used a captured CUDA graph", *VERSION
        )
        self.graph_misses = used(
            "graph_misses",
            "Computations of a stage on a GPU for which every captured CUDA graph was too small",
            *VERSION,
        )
        self.dropped_candidates = counter(
            "dropped_candidates", "Candidates that were dropped after a stage", "stage", *VERSION
        )
        self.engine_steps = counter("engine_steps", "Computed steps, by stage", "stage", *VERSION)
        self.engine_busy_seconds = counter(
            "engine_busy_seconds", "Seconds in which steps were computed, by stage", "stage", *VERSION
        )
        self.recomputed_tokens = counter(
            "recomputed_tokens",
            "Tokens that were computed again because their hidden states had been evicted, by stage",
            "stage",
            *VERSION,
        )
        self.failed_questions = counter("failed_questions", "Questions that ended in an internal error", *VERSION)
        self.wasted_tokens = counter(
            "wasted_tokens", "Tokens that were computed for questions that got no answer", *VERSION
        )
        self.cancelled_requests = counter(
            "cancelled_requests", "Questions that were cancelled because the client had disconnected", *VERSION
        )
        self.state_bytes = gauge("state_bytes", "Bytes of the hidden states that are kept between steps", *VERSION)
        self.out_of_memory = counter(
            "out_of_memory", "Steps that did not fit into memory and were repeated in halves", *VERSION
        )
        self.step_tokens = gauge(
            "step_tokens", "Largest number of tokens in a step; halved when memory runs out, and raised again later"
        )
        self.queued_seconds = gauge("queued_seconds", "Predicted seconds until all accepted questions are answered")
        self.seconds_per_token = gauge("seconds_per_token", "Measured seconds per token of a stage", "stage", *VERSION)
        self.truncated_candidates = counter(
            "truncated_candidates", "Candidates that were cut at the token limit", *VERSION
        )
        self.duplicate_candidates = counter(
            "duplicate_candidates",
            "Candidates that were not computed because the question has an identical candidate",
            *VERSION,
        )
        self.vectors = used(
            "vectors",
            "Texts whose vectors a first stage used, by source: `cache`, `store` (precomputed) or `computed`",
            "source",
            *VERSION,
        )
        self.key_requests = counter(
            "key_requests",
            "Questions that were accepted with an API key, by the key's id (`cerberank server keys list`)",
            "key",
        )
        self.key_tokens = counter("key_tokens", "Tokens of the answered questions, by the API key's id", "key")
        self.key_exhausted = counter(
            "key_exhausted", "Questions that were rejected with 429 because of a key's quota, by the key's id", "key"
        )
        self.keys_stale = gauge(
            "keys_stale", "1 while the key file cannot be read, so that removed keys still work and new keys do not"
        )
        self.head_agreement = counter(
            "head_agreement",
            "Answered questions that reached the heads; `agree` is true if all heads rank the same candidate first",
            "agree",
            *VERSION,
        )
        self.top_score = histogram(
            "top_score",
            "Score of the first candidate; the calibrated score if the version is calibrated",
            SCORES,
            *VERSION,
        )
        self.answerable = histogram(
            "answerable",
            "Probability that any candidate answers the question; only for calibrated versions",
            SCORES,
            *VERSION,
        )
        self.top_score_squares = counter(
            "top_score_squares",
            "Sum of the squared scores of first candidates, to compute their standard deviation",
            *VERSION,
        )
        self.golden_deviation = gauge(
            "golden_deviation",
            "Largest difference of a golden score at the last hourly check, divided by its tolerance; above 1 a load "
            "would reject the version. 0 before the first check and with a first stage",
            *VERSION,
        )
        self.errors = counter("errors", "Requests, and questions of a batch, that got an error, by kind", "kind")
        self.refused_requests = counter(
            "refused_requests", "Questions that were rejected with 503, by reason", "reason"
        )
        self.offered_seconds = counter(
            "offered_seconds",
            "Predicted compute seconds of the questions that reached the engine, accepted or rejected, except those "
            "rejected for their own deadlines, and the seconds of reading bodies, divided by "
            "the number of threads that read them (accepted); at a rate of 1 the replica is fully used. Rejected "
            "questions, which clients may repeat, count at most one second in each second",
            "outcome",
        )
        self.requests_in_flight = gauge("requests_in_flight", "Ranking requests in progress")
        self.queued_tokens = gauge("queued_tokens", "Tokens of accepted questions that are not answered yet")
        self.ready = gauge("ready", "1 when the replica is ready, as `/health/ready` reports")
        self.create()

    @property
    def declared(self) -> tuple[Series, ...]:
        """All these series, in the order of their declaration."""
        return tuple(self._families)

    def create(self, **known: Sequence[str]) -> None:
        """Create the children, with the value 0, of every series all of whose labels are in `known` or fixed.

        Existing children keep their values. Families that are created on use are left out.
        """
        values = {**FIXED, **known}
        for series, family in self._families.items():
            if series not in self._on_use and series.labels and values.keys() >= set(series.labels):
                for child in product(*(values[label] for label in series.labels)):
                    family.labels(*child)

    def create_shadow(self, model: str, version: str) -> None:
        """Create the series of a shadow version, so that the first failure is an increase."""
        for series in self._on_use:
            if series.name.startswith("shadow_"):
                self._families[series].labels(model, version)

    def remove(self, **values: str) -> None:
        """Remove every child that has these label values."""
        for series, family in self._families.items():
            if values.keys() <= set(series.labels):
                family.remove_by_labels(values)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        family = Counter(PREFIX + name, meaning, labels, registry=self._registry)
        self._families[Series(name, "counter", meaning, labels)] = family
        return family

    def _used(self, name: str, meaning: str, *labels: str) -> Counter:
        """A counter without children until they are counted."""
        family = self._counter(name, meaning, *labels)
        self._on_use.add(next(reversed(self._families)))
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
    "labelled_version", "gauge", "1 for the version that serves a label on this replica", ("model", "label", "version")
)
LABEL_DIFFERS = Series(
    "label_wanted_differs",
    "gauge",
    "1 while the store assigns the label to another version than the one that serves it on this replica",
    ("model", "label"),
)
ENGINE_RUNNING = Series(
    "engine_running", "gauge", "1 while a version accepts questions, 0 after its engine has failed", VERSION
)
STALLED_SECONDS = Series(
    "stalled_seconds", "gauge", "Seconds for which accepted questions have waited without progress", VERSION
)
CALIBRATED_TOP_SCORE = Series(
    "calibrated_top_score",
    "gauge",
    "Mean score of first candidates over the questions with which the version was calibrated; no sample for versions "
    "without calibration",
    VERSION,
)
CALIBRATED_ANSWERABLE = Series(
    "calibrated_answerable",
    "gauge",
    "Mean probability that any candidate answers, over the questions with which the version was calibrated; no sample "
    "for versions without calibration",
    VERSION,
)
STORE_POLL_AGE = Series(
    "store_poll_age_seconds",
    "gauge",
    "Seconds since the last read of the store ended; grows while a read hangs. No sample without a store",
)
CERTIFICATE_EXPIRY = Series(
    "certificate_expiry_timestamp_seconds",
    "gauge",
    "End of the certificate that new connections get, in Unix seconds. No sample without TLS",
)
CERTIFICATE_STALE = Series(
    "certificate_stale",
    "gauge",
    "1 while the certificate's files have changed and cannot be used, so that the old certificate stays in use. No "
    "sample without TLS",
)
MEMORY_LIMIT = Series(
    "memory_limit_bytes",
    "gauge",
    "Limit of the process's memory by its cgroup, to compare with `process_resident_memory_bytes`. No sample without a "
    "limit",
)
DROPPED_LOG_LINES = Series(
    "dropped_log_lines", "counter", "Log lines that were dropped because nobody read the process's standard error"
)
BUILD_INFO = Series(
    "build_info",
    "gauge",
    "Always 1; the labels have the release, and the settings of backend, device and precision",
    ("version", "python", "backend", "device", "precision"),
)
VERSION_INFO = Series(
    "version_info",
    "gauge",
    "1 for each loaded version; the labels have the backend and the precision that it runs with, and the reason",
    ("model", "version", "backend", "precision", "reason"),
)
DEVICE_MEMORY = Series("device_memory_total_bytes", "gauge", "Memory of the GPU; no sample without a GPU and NVML")
DEVICE_MEMORY_USED = Series("device_memory_used_bytes", "gauge", "Memory of the GPU that is in use by all processes")
DEVICE_UTILISATION = Series(
    "device_utilisation_ratio", "gauge", "Share of the last sampling period in which the GPU was computing, 0 to 1"
)
TOKEN_CACHE = (
    Series("token_cache_hits", "counter", "Questions, candidates and contexts whose tokens were in the cache"),
    Series("token_cache_misses", "counter", "Questions, candidates and contexts that had to be tokenised"),
    Series("token_cache_bytes", "gauge", "Memory of the cached tokens"),
)
VECTOR_CACHE = (
    Series("vector_cache_hits", "counter", "Questions and candidates whose vectors were in the cache"),
    Series("vector_cache_misses", "counter", "Questions and candidates whose vectors were not in the cache"),
    Series("vector_cache_bytes", "gauge", "Memory of the cached vectors"),
)
SCRAPED = (
    LABELLED_VERSION,
    LABEL_DIFFERS,
    ENGINE_RUNNING,
    STALLED_SECONDS,
    CALIBRATED_TOP_SCORE,
    CALIBRATED_ANSWERABLE,
    STORE_POLL_AGE,
    CERTIFICATE_EXPIRY,
    CERTIFICATE_STALE,
    MEMORY_LIMIT,
    DROPPED_LOG_LINES,
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
