"""All series of the service, each declared once here.

The number of label values is bounded: only served models and versions and their stages occur, and kinds and phases are
fixed. `python -m cerberank_service.telemetry.series` prints the table of docs/metrics.md.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prometheus_client import Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from cerberank_models.checkpoint.store.checkpoint_store import LABELS
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
FIXED_VALUES: Mapping[str, Sequence[str]] = {
    "phase": PHASES,
    "complete": ("true", "false"),
    "agree": ("true", "false"),
    "kind": tuple(kind.label for kind in Kind),
    "label": LABELS,
    "cause": COPY_CAUSES,
    "outcome": OUTCOMES,
}
"""Labels whose values do not depend on versions."""

MetricT = TypeVar("MetricT", Counter, Gauge, Histogram, CounterMetricFamily, GaugeMetricFamily)


@dataclass(frozen=True, eq=False, slots=True)
class Series(Generic[MetricT]):
    """One family of series."""

    metric: type[MetricT]
    """The class that holds its values; a class of prometheus_client's `core` if they are read at each scrape."""
    name: str
    """The name without `PREFIX` and without a counter's suffix `_total`."""
    help: str
    labels: tuple[str, ...] = ()
    """`VERSION` comes last."""
    buckets: tuple[float, ...] = ()
    on_use: bool = False
    """Most versions never use it: a child is created when it is first counted, all others as soon as their labels are
    known, so that no rate misses the first event."""

    @property
    def kind(self) -> str:
        """The type in the exposition."""
        return self.metric.__name__.removesuffix("MetricFamily").lower()

    @property
    def scraped(self) -> bool:
        """True if its values are read at each scrape."""
        return not issubclass(self.metric, Counter | Gauge | Histogram)


REJECTED_VERSIONS = Series(
    Counter,
    "rejected_versions",
    "Rejections of a version that failed a check, by reason; kept until nothing asks for the version any more",
    ("reason", *VERSION),
)
COPY_FAILURES = Series(
    Counter, "copy_failures", "Failed attempts to copy a version, which are repeated, by cause", ("cause",)
)
LABEL_FLIPS = Series(Counter, "label_flips", "Changes of the version that a label has on this replica", ("label",))
STORE_REACHABLE = Series(Gauge, "store_reachable", "1 when the last read of the store succeeded, 0 when it failed")
SHADOW_QUESTIONS = Series(
    Counter,
    "shadow_questions",
    "Questions that were also sent to the shadow version and compared",
    VERSION,
    on_use=True,
)
SHADOW_FLIPS = Series(
    Counter,
    "shadow_flips",
    "Compared questions for which the shadow ranks another candidate first",
    VERSION,
    on_use=True,
)
SHADOW_OVERLAP = Series(
    Counter,
    "shadow_overlap",
    "Sum of the rank-biased overlaps of both rankings over the compared questions",
    VERSION,
    on_use=True,
)
SHADOW_STABLE_SECONDS = Series(
    Counter,
    "shadow_stable_seconds",
    "Compute seconds of the stable version for the compared questions",
    VERSION,
    on_use=True,
)
SHADOW_SECONDS = Series(
    Counter, "shadow_seconds", "Compute seconds of the shadow version for the compared questions", VERSION, on_use=True
)
SHADOW_FAILURES = Series(
    Counter, "shadow_failures", "Questions that the shadow version failed to answer", VERSION, on_use=True
)
SHADOW_SKIPPED = Series(
    Counter,
    "shadow_skipped",
    "Questions that were chosen for the shadow version but not sent to it, because the service was busy or the "
    "shadow cannot answer them",
    VERSION,
    on_use=True,
)
REQUEST_PHASE_SECONDS = Series(
    Histogram,
    "request_phase_seconds",
    "Latency of answered questions by phase: encode, queue, compute, rest (waits for threads, and the answer's "
    "bytes), and total, from the complete body until the server gets the answer",
    ("phase", *VERSION),
    buckets=SECONDS,
)
REQUEST_CANDIDATES = Series(
    Histogram, "request_candidates", "Candidates of each answered question", VERSION, buckets=CANDIDATES
)
REQUESTS = Series(
    Counter,
    "requests",
    "Answered questions; `complete` is false if a deadline ended the ranking early",
    ("complete", *VERSION),
)
SCHEDULES = Series(
    Counter,
    "schedules",
    "Answered questions by drop schedule: one of the checkpoint's schedules, or `other`",
    ("schedule", *VERSION),
)
EXPECTED_LOSS_POINTS = Series(
    Counter,
    "expected_loss_points",
    "Points of this quality metric that the drop schedules are expected to lose, summed over all answers",
    ("metric", *VERSION),
)
TOKENS = Series(
    Counter,
    "tokens",
    "Computed tokens by stage; a dropped candidate counts in the stages up to its drop",
    ("stage", *VERSION),
)
PADDING_TOKENS = Series(
    Counter, "padding_tokens", "Computed padding tokens, which `cerberank_tokens_total` does not contain", VERSION
)
GRAPH_HITS = Series(
    Counter, "graph_hits", "Computations of a stage on a GPU that used a captured CUDA graph", VERSION, on_use=True
)
GRAPH_MISSES = Series(
    Counter,
    "graph_misses",
    "Computations of a stage on a GPU for which every captured CUDA graph was too small",
    VERSION,
    on_use=True,
)
DROPPED_CANDIDATES = Series(
    Counter, "dropped_candidates", "Candidates that were dropped after a stage", ("stage", *VERSION)
)
LEXICAL_DROPPED_CANDIDATES = Series(
    Counter,
    "lexical_dropped_candidates",
    "Candidates of answered questions that the lexical layer dropped before any stage",
    VERSION,
)
ENGINE_STEPS = Series(Counter, "engine_steps", "Computed steps, by stage", ("stage", *VERSION))
ENGINE_BUSY_SECONDS = Series(
    Counter, "engine_busy_seconds", "Seconds in which steps were computed, by stage", ("stage", *VERSION)
)
RECOMPUTED_TOKENS = Series(
    Counter,
    "recomputed_tokens",
    "Tokens that were computed again because their hidden states had been evicted, by stage",
    ("stage", *VERSION),
)
FAILED_QUESTIONS = Series(Counter, "failed_questions", "Questions that ended in an internal error", VERSION)
WASTED_TOKENS = Series(Counter, "wasted_tokens", "Tokens that were computed for questions that got no answer", VERSION)
CANCELLED_REQUESTS = Series(
    Counter, "cancelled_requests", "Questions that were cancelled because the client had disconnected", VERSION
)
STATE_BYTES = Series(Gauge, "state_bytes", "Bytes of the hidden states that are kept between steps", VERSION)
OUT_OF_MEMORY = Series(
    Counter, "out_of_memory", "Steps that did not fit into memory and were repeated in halves", VERSION
)
STEP_TOKENS = Series(
    Gauge, "step_tokens", "Largest number of tokens in a step; halved when memory runs out, and raised again later"
)
QUEUED_SECONDS = Series(Gauge, "queued_seconds", "Predicted seconds until all accepted questions are answered")
SECONDS_PER_TOKEN = Series(Gauge, "seconds_per_token", "Measured seconds per token of a stage", ("stage", *VERSION))
TRUNCATED_CANDIDATES = Series(Counter, "truncated_candidates", "Candidates that were cut at the token limit", VERSION)
DUPLICATE_CANDIDATES = Series(
    Counter,
    "duplicate_candidates",
    "Candidates that were not computed because the question has an identical candidate",
    VERSION,
)
VECTORS = Series(
    Counter,
    "vectors",
    "Texts whose vectors a first stage used, by source: `cache`, `store` (precomputed) or `computed`",
    ("source", *VERSION),
    on_use=True,
)
KEY_REQUESTS = Series(
    Counter,
    "key_requests",
    "Questions that were accepted with an API key, by the key's id (`cerberank admin keys list`)",
    ("key",),
)
KEY_TOKENS = Series(Counter, "key_tokens", "Tokens of the answered questions, by the API key's id", ("key",))
KEY_EXHAUSTED = Series(
    Counter,
    "key_exhausted",
    "Questions that were rejected with 429 because of a key's quota, by the key's id",
    ("key",),
)
KEYS_STALE = Series(
    Gauge, "keys_stale", "1 while the key file cannot be read, so that removed keys still work and new keys do not"
)
HEAD_AGREEMENT = Series(
    Counter,
    "head_agreement",
    "Answered questions that reached the heads; `agree` is true if all heads rank the same candidate first",
    ("agree", *VERSION),
)
TOP_SCORE = Series(
    Histogram,
    "top_score",
    "Score of the first candidate; the calibrated score if the version is calibrated",
    VERSION,
    buckets=SCORES,
)
ANSWERABLE = Series(
    Histogram,
    "answerable",
    "Probability that any candidate answers the question; only for calibrated versions",
    VERSION,
    buckets=SCORES,
)
TOP_SCORE_SQUARES = Series(
    Counter,
    "top_score_squares",
    "Sum of the squared scores of first candidates, to compute their standard deviation",
    VERSION,
)
GOLDEN_DEVIATION = Series(
    Gauge,
    "golden_deviation",
    "Largest difference of a golden score at the last hourly check, divided by its tolerance; above 1 a load would "
    "reject the version. 0 before the first check and with a first stage",
    VERSION,
)
ERRORS = Series(Counter, "errors", "Requests, and questions of a batch, that got an error, by kind", ("kind",))
REFUSED_REQUESTS = Series(Counter, "refused_requests", "Questions that were rejected with 503, by reason", ("reason",))
OFFERED_SECONDS = Series(
    Counter,
    "offered_seconds",
    "Predicted compute seconds of the questions that reached the engine, accepted or rejected, except those "
    "rejected for their own deadlines, and the seconds of reading bodies, divided by the number of threads that "
    "read them (accepted); at a rate of 1 the replica is fully used. Rejected questions, which clients may repeat, "
    "count at most one second in each second",
    ("outcome",),
)
REQUESTS_IN_FLIGHT = Series(Gauge, "requests_in_flight", "Ranking requests in progress")
QUEUED_TOKENS = Series(Gauge, "queued_tokens", "Tokens of accepted questions that are not answered yet")
READY = Series(Gauge, "ready", "1 when the replica is ready, as `/health/ready` reports")

# Read at each scrape.
LABELLED_VERSION = Series(
    GaugeMetricFamily,
    "labelled_version",
    "1 for the version that serves a label on this replica",
    ("model", "label", "version"),
)
LABEL_WANTED_DIFFERS = Series(
    GaugeMetricFamily,
    "label_wanted_differs",
    "1 while the store assigns the label to another version than the one that serves it on this replica",
    ("model", "label"),
)
ENGINE_RUNNING = Series(
    GaugeMetricFamily, "engine_running", "1 while a version accepts questions, 0 after its engine has failed", VERSION
)
STALLED_SECONDS = Series(
    GaugeMetricFamily, "stalled_seconds", "Seconds for which accepted questions have waited without progress", VERSION
)
CALIBRATED_TOP_SCORE = Series(
    GaugeMetricFamily,
    "calibrated_top_score",
    "Mean score of first candidates over the questions with which the version was calibrated; no sample for "
    "versions without calibration",
    VERSION,
)
CALIBRATED_ANSWERABLE = Series(
    GaugeMetricFamily,
    "calibrated_answerable",
    "Mean probability that any candidate answers, over the questions with which the version was calibrated; no "
    "sample for versions without calibration",
    VERSION,
)
STORE_POLL_AGE_SECONDS = Series(
    GaugeMetricFamily,
    "store_poll_age_seconds",
    "Seconds since the last read of the store ended; grows while a read hangs. No sample without a store",
)
CERTIFICATE_EXPIRY_TIMESTAMP_SECONDS = Series(
    GaugeMetricFamily,
    "certificate_expiry_timestamp_seconds",
    "End of the certificate that new connections get, in Unix seconds. No sample without TLS",
)
CERTIFICATE_STALE = Series(
    GaugeMetricFamily,
    "certificate_stale",
    "1 while the certificate's files have changed and cannot be used, so that the old certificate stays in use. No "
    "sample without TLS",
)
MEMORY_LIMIT_BYTES = Series(
    GaugeMetricFamily,
    "memory_limit_bytes",
    "Limit of the process's memory by its cgroup, to compare with `process_resident_memory_bytes`. No sample "
    "without a limit",
)
DROPPED_LOG_LINES = Series(
    CounterMetricFamily,
    "dropped_log_lines",
    "Log lines that were dropped because nobody read the process's standard error",
)
BUILD_INFO = Series(
    GaugeMetricFamily,
    "build_info",
    "Always 1; the labels have the release, and the settings of backend, device and precision",
    ("version", "python", "backend", "device", "precision"),
)
VERSION_INFO = Series(
    GaugeMetricFamily,
    "version_info",
    "1 for each loaded version; the labels have the backend and the precision that it runs with, and the reason",
    ("model", "version", "backend", "precision", "reason"),
)
DEVICE_MEMORY_TOTAL_BYTES = Series(
    GaugeMetricFamily, "device_memory_total_bytes", "Memory of the GPU; no sample without a GPU and NVML"
)
DEVICE_MEMORY_USED_BYTES = Series(
    GaugeMetricFamily, "device_memory_used_bytes", "Memory of the GPU that is in use by all processes"
)
DEVICE_UTILISATION_RATIO = Series(
    GaugeMetricFamily,
    "device_utilisation_ratio",
    "Share of the last sampling period in which the GPU was computing, 0 to 1",
)
TOKEN_CACHE_HITS = Series(
    CounterMetricFamily, "token_cache_hits", "Questions, candidates and contexts whose tokens were in the cache"
)
TOKEN_CACHE_MISSES = Series(
    CounterMetricFamily, "token_cache_misses", "Questions, candidates and contexts that had to be tokenised"
)
TOKEN_CACHE_BYTES = Series(GaugeMetricFamily, "token_cache_bytes", "Memory of the cached tokens")
VECTOR_CACHE_HITS = Series(
    CounterMetricFamily, "vector_cache_hits", "Questions and candidates whose vectors were in the cache"
)
VECTOR_CACHE_MISSES = Series(
    CounterMetricFamily, "vector_cache_misses", "Questions and candidates whose vectors were not in the cache"
)
VECTOR_CACHE_BYTES = Series(GaugeMetricFamily, "vector_cache_bytes", "Memory of the cached vectors")

SERIES: tuple[Series[Any], ...] = tuple(each for each in list(globals().values()) if isinstance(each, Series))


def markdown_table() -> str:
    """Name, type, labels and meaning of each series, including prometheus_client's series about the process."""
    declared = [(PREFIX + each.name, each.kind, sorted(each.labels), each.help) for each in SERIES]
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
