"""The table of all series, each of which is declared once.

It determines which series are registered (`registration.py`), which exist from the start, which are removed with a
version, and the table in docs/metrics.md (`metrics_table.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cerberank_models.checkpoint.store.contract import LABELS
from cerberank_service.errors import Kind

PREFIX = "cerberank_"
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CANDIDATES = (1, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
SCORES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
PHASES = ("encode", "queue", "compute", "total")
COPY_CAUSES = ("store", "disk", "time", "process")
"""What kept a version from being copied: the store, no space for the copy, its time limit, the copying process
or a shortage of processes, threads, descriptors or memory."""
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
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without infinity."""


SERIES = (
    Series("rejected_versions", "counter", "Versions that failed a check, by reason", ("reason",)),
    Series("copy_failures", "counter", "Copies of versions that failed and are tried again, by cause", ("cause",)),
    Series("label_flips", "counter", "Labels that moved", ("label",)),
    Series("store_reachable", "gauge", "1 when the store could be read"),
    Series("shadow_questions", "counter", "Questions that the shadow was asked as well", VERSION),
    Series("shadow_flips", "counter", "Mirrored questions where another candidate came first", VERSION),
    Series("shadow_overlap", "counter", "Sum of the mirrored questions' rank-biased overlaps", VERSION),
    Series(
        "shadow_score_shift",
        "counter",
        "Sum of the mirrored questions' mean absolute differences of scores",
        VERSION,
    ),
    Series("shadow_stable_seconds", "counter", "Compute seconds of the stable version on mirrored questions", VERSION),
    Series("shadow_seconds", "counter", "Compute seconds of the shadow on mirrored questions", VERSION),
    Series("shadow_failures", "counter", "Questions that the shadow could not answer", VERSION),
    Series(
        "shadow_skipped",
        "counter",
        "Questions not mirrored: the service was busy, or the shadow cannot take them",
        VERSION,
    ),
    Series(
        "request_phase_seconds",
        "histogram",
        "Latency of answered requests by phase: encode, queue, compute, total",
        ("phase", *VERSION),
        SECONDS,
    ),
    Series("request_candidates", "histogram", "Candidates of answered requests", VERSION, CANDIDATES),
    Series("requests", "counter", "Answered requests", ("complete", *VERSION)),
    Series("schedules", "counter", "Answers by drop schedule: the tuned ones, and `other`", ("schedule", *VERSION)),
    Series(
        "expected_loss_points",
        "counter",
        "Points that the schedules of all answers are expected to cost",
        ("metric", *VERSION),
    ),
    Series(
        "tokens", "counter", "Tokens run, by stage: those of a dropped candidate up to its exit", ("stage", *VERSION)
    ),
    Series("padding_tokens", "counter", "Padding tokens run beside the real ones", VERSION),
    Series("graph_hits", "counter", "Runs of a stage that a captured CUDA graph had room for", VERSION),
    Series("graph_misses", "counter", "Runs of a stage that no captured CUDA graph had room for", VERSION),
    Series("dropped_candidates", "counter", "Candidates that a stage's exit dropped", ("stage", *VERSION)),
    Series("engine_steps", "counter", "Batches run, by stage", ("stage", *VERSION)),
    Series("engine_busy_seconds", "counter", "Seconds in batches, by stage", ("stage", *VERSION)),
    Series(
        "recomputed_tokens",
        "counter",
        "Tokens run again, by stage, because their states were given up",
        ("stage", *VERSION),
    ),
    Series("failed_questions", "counter", "Questions that ended in an internal error", VERSION),
    Series("wasted_tokens", "counter", "Tokens run for questions that got no answer", VERSION),
    Series("cancelled_requests", "counter", "Questions dropped because their client had gone", VERSION),
    Series("state_bytes", "gauge", "Hidden states that wait between steps", VERSION),
    Series("out_of_memory", "counter", "Batches that did not fit into memory and were tried again in halves", VERSION),
    Series("step_tokens", "gauge", "Tokens that a step may hold: halved when memory ran out, and raised again later"),
    Series("queued_seconds", "gauge", "Predicted seconds until all accepted requests are answered"),
    Series("seconds_per_token", "gauge", "Seconds that a stage takes for a token, as measured", ("stage", *VERSION)),
    Series(
        "fixed_step_seconds",
        "gauge",
        "Seconds that a step of a stage takes beside those for its tokens, as measured",
        ("stage", *VERSION),
    ),
    Series("truncated_candidates", "counter", "Candidates that were cut to the token limit", VERSION),
    Series("duplicate_candidates", "counter", "Candidates answered by an identical one", VERSION),
    Series(
        "vectors", "counter", "Texts that a first stage read, by where their vectors came from", ("source", *VERSION)
    ),
    Series(
        "key_requests", "counter", "Requests let in, by their API key's id (`cerberank server keys list`)", ("key",)
    ),
    Series("key_tokens", "counter", "Tokens of the pairs of those that were answered", ("key",)),
    Series("keys_stale", "gauge", "1 while the key file cannot be read, so that a key that was removed still works"),
    Series(
        "head_agreement",
        "counter",
        "Questions whose heads agree on the first candidate, and those whose do not",
        ("agree", *VERSION),
    ),
    Series("top_score", "histogram", "Score of the first candidate", VERSION, SCORES),
    Series(
        "top_score_squares",
        "counter",
        "Sum of the squares of first candidates' scores, for their deviation",
        VERSION,
    ),
    Series("errors", "counter", "Requests answered with an error, by kind", ("kind",)),
    Series("refused_requests", "counter", "Questions refused with 503, by reason", ("reason",)),
    Series("refused_candidates", "counter", "Candidates of those that the engine refused, by reason", ("reason",)),
    Series(
        "refused_queue_seconds",
        "histogram",
        "Predicted time in the queue of questions that the engine refused, by reason",
        ("reason",),
        SECONDS,
    ),
    Series(
        "offered_seconds",
        "counter",
        "Predicted compute seconds of the questions that reached an engine, accepted or refused; a rate of 1 is all "
        "that a replica can serve",
        ("outcome",),
    ),
    Series("ignored_fields", "counter", "Fields of other services' dialects that had no effect here", ("dialect",)),
    Series("requests_in_flight", "gauge", "Requests being handled"),
    Series("queued_tokens", "gauge", "Tokens of accepted, unanswered requests"),
    Series("ready", "gauge", "1 when the model is ready and serving"),
)

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
DEVICE_MEMORY = Series("device_memory_total_bytes", "gauge", "The GPU's memory; no sample without a GPU and NVML")
DEVICE_MEMORY_USED = Series("device_memory_used_bytes", "gauge", "Memory in use on the GPU, by all of its processes")
DEVICE_UTILISATION = Series(
    "device_utilisation_ratio", "gauge", "Share of the last moment in which a kernel ran on the GPU"
)
SCRAPED = (
    LABELLED_VERSION,
    LABEL_DIFFERS,
    ENGINE_RUNNING,
    STALLED_SECONDS,
    STORE_POLL_AGE,
    BUILD_INFO,
    DEVICE_MEMORY,
    DEVICE_MEMORY_USED,
    DEVICE_UTILISATION,
)
"""Series that are not updated but read at each scrape (`scraped.py`)."""

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
"""Read at each scrape too (`cache_metrics.py`)."""
