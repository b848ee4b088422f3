"""Settings of earlier versions, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CONTROLLER = "a controller on the metrics moves labels: docs/versions.md"

IMPORT = "`cerberank import MODEL FOLDER` takes it as an option; then serve the folder"

REMOVED: Mapping[str, str] = MappingProxyType(
    {
        "CERBERANK_COPIES": "set TMPDIR: local copies of versions lie in the system's temporary folder",
        "CERBERANK_PROMOTE_AFTER": CONTROLLER,
        "CERBERANK_PROMOTE_FLIP_PERCENT": CONTROLLER,
        "CERBERANK_PROMOTE_OVERLAP": CONTROLLER,
        "CERBERANK_PROMOTE_LATENCY_RATIO": CONTROLLER,
        "CERBERANK_ROLLBACK_FAILURE_PERCENT": CONTROLLER,
        "CERBERANK_OBJECTIVE_GRACE_MS": "CERBERANK_QUEUE_SECONDS bounds the time in the queue",
        "CERBERANK_OBJECTIVE_SLOWDOWN": "CERBERANK_QUEUE_SECONDS bounds the time in the queue",
        "CERBERANK_MAX_QUEUED_TOKENS": "CERBERANK_QUEUE_SECONDS bounds the queue; memory holds 4,000,000 tokens",
        "CERBERANK_MODEL_MAX_LENGTH": IMPORT,
        "CERBERANK_MODEL_CALIBRATE": IMPORT,
        "CERBERANK_MODEL_CACHE": "set XDG_CACHE_HOME: imported models lie in its folder cerberank",
        "CERBERANK_GRAPH_TOKENS": "steps run as CUDA graphs up to a full one, as far as memory allows",
        "CERBERANK_SCORE_CACHE_ENTRIES": "scores are not cached; cache whole answers in the client or in front",
        "CERBERANK_MAX_BODIES_BYTES": "all bodies together may take 16 times CERBERANK_MAX_BODY_BYTES",
        "CERBERANK_MAX_HEADER_BYTES": "a request's head may take 32 KB",
        "CERBERANK_CLIENT_SECONDS": "a client has 30 seconds; a proxy in front can give it less",
        "CERBERANK_STATE_BYTES": "hidden states that wait may take 512 MiB, on a GPU an eighth of its memory",
    }
)
"""Removed settings and their replacements; the service does not start while one of them is set."""
