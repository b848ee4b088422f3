"""Response headers: for clients `answerable`, timing and numbers of cut texts, and for load balancers the load."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from cerberank_models.ranking.call import RankAnswer, Timing
from cerberank_service.service import Load

LOAD_FORMAT = "endpoint-load-metrics-format"
"""The request header with which a load balancer asks for the load: `TEXT` or `JSON`, as in Triton and vLLM."""
UNREAD = ("X-Truncated-Candidates", "X-Unknown-Candidates", "X-Truncated-Question", "X-Unknown-Question")
"""The headers that `unread_texts` returns."""
ANSWERABLE = "X-Answerable"
"""The header that `answerable` returns."""
LOAD = "endpoint-load-metrics"
"""The response header with the load (ORCA, xds.data.orca.v3.OrcaLoadReport)."""


def server_timing(timing: Timing) -> dict[str, str]:
    """The header `Server-Timing`, in milliseconds.

    >>> server_timing(Timing(encode=1.0, queue=0.25, compute=20.0, total=21.5))
    {'Server-Timing': 'encode;dur=1.000, queue;dur=0.250, compute;dur=20.000, total;dur=21.500'}
    """
    return {"Server-Timing": ", ".join(f"{phase};dur={value:.3f}" for phase, value in asdict(timing).items())}


def unread_texts(answer: RankAnswer) -> dict[str, str]:
    """The headers on texts that were cut or mostly consist of unknown tokens.

    The values are numbers of candidates, or 1 for the question; a header is absent if its number is 0. The dialects of
    text-embeddings-inference and Voyage, for example, have no field for this.
    """
    counts = (
        int(answer.truncated.sum()),
        answer.unknown,
        int(answer.question_truncated),
        int(answer.question_unknown),
    )
    return {name: str(count) for name, count in zip(UNREAD, counts, strict=True) if count}


def answerable(answer: RankAnswer) -> dict[str, str]:
    """The header `X-Answerable`, for dialects without a field for P(any candidate answers); none if it is unknown."""
    known = None if answer.calibrated is None else answer.calibrated.answerable
    return {} if known is None else {ANSWERABLE: f"{known:.4f}"}


def load_report(wanted: str | None, load: Callable[[], Load]) -> Mapping[str, str]:
    """The load header in the requested format; empty if no format or an unknown format was requested.

    >>> load_report("text", lambda: Load(queued_tokens=1200, queued_seconds=0.5, requests_in_flight=3))[LOAD]
    'TEXT named_metrics.queued_tokens=1200, named_metrics.queued_seconds=0.5, named_metrics.requests_in_flight=3'
    """
    match (wanted or "").strip().upper():
        case "TEXT":
            named = ", ".join(f"named_metrics.{name}={value}" for name, value in asdict(load()).items())
            return {LOAD: f"TEXT {named}"}
        case "JSON":
            return {LOAD: "JSON " + json.dumps({"named_metrics": asdict(load())})}
    return {}
