"""Compares servers over HTTP with one client and the same weights: `cerberank serve`, and infinity-emb if it is given.

CrossEncoder, which runs in this process without the cost of HTTP, is compared too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from cerberank_benchmarks.clients.server import ServerSettings, cerberank_server, infinity_server
from cerberank_benchmarks.pieces.offline import (
    HALF_INFINITY,
    HALF_PEER,
    INFINITY,
    compared,
    cross_encoders,
    differing,
    predicted,
    speed_chart,
    tokens_of,
)
from cerberank_benchmarks.report import Report, Value
from cerberank_benchmarks.rounds import median_seconds
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.weights import cross_encoder, imported
from cerberank_benchmarks.workload import Task, Workload

INFINITY_MODEL = "default/not-specified"
"""The name that infinity-emb 0.0.77 gives a model from a folder."""


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates and server; the token cache is off, because the peers have none."""
    source = cross_encoder(settings, scratch)
    checkpoint = imported(source, scratch)
    peers = cross_encoders(source)
    half = HALF_PEER in peers
    rows: list[dict[str, Value]] = []
    workload = Workload(settings)
    with ExitStack() as servers:
        forms = {"fp32": ("onnx", "fp32"), "int8": ("onnx", "int8")} | (
            {"torch bf16": ("torch", "bf16")} if half else {}
        )
        ours, theirs = dict[str, httpx.Client](), dict[str, httpx.Client]()
        for name, (backend, precision) in forms.items():
            options: ServerSettings = {"backend": backend, "precision": precision, "token_cache_bytes": 0}
            server = cerberank_server(checkpoint.path, scratch / precision, options)
            ours[name] = servers.enter_context(server).client
        if settings.infinity is not None:
            for name, dtype in ((INFINITY, "float32"), (HALF_INFINITY, "bfloat16"))[: 1 + half]:
                server = infinity_server(settings.infinity, source, scratch / dtype, dtype=dtype)
                theirs[name] = servers.enter_context(server).client
        for count in settings.candidates:
            task = workload.task(count)
            runs: dict[str, Callable[[], NDArray[Any]]] = {
                **{name: partial(predicted, peer, task) for name, peer in peers.items()},
                **{name: partial(_rank, client, task) for name, client in ours.items()},
                **{name: partial(reranked, client, task) for name, client in theirs.items()},
            }
            scores = {name: run() for name, run in runs.items()}  # also the warm-up
            seconds = median_seconds(runs, rounds=settings.rounds, label=f"{count} candidates over HTTP")
            rows += compared(count, tokens_of(checkpoint, task), seconds, scores, peers=[*peers, *theirs])
    return Report(
        name="http",
        text="One question a request, one client: median seconds of the whole request, tokenised anew each time; times "
        "faster than CrossEncoder in this process in fp32 (`ratio`), and than the fastest of the peers in this table "
        "(`to the best peer`).",
        rows=rows,
        chart=speed_chart(rows),
        problems=differing(rows),
    )


def _rank(client: httpx.Client, task: Task) -> NDArray[Any]:
    body = {"question": task.question, "candidates": list(task.texts), "windows": "off"}  # peers cut long texts too
    results = client.post("/v1/rank", json=body).raise_for_status().json()["results"]
    return _by_index(results, "score")


def reranked(client: httpx.Client, task: Task) -> NDArray[Any]:
    """The scores of infinity-emb."""
    body = {"model": INFINITY_MODEL, "query": task.question, "documents": list(task.texts)}
    results = client.post("/rerank", json=body).raise_for_status().json()["results"]
    return _by_index(results, "relevance_score")


def _by_index(results: list[dict[str, Any]], field: str) -> NDArray[Any]:
    return np.asarray([result[field] for result in sorted(results, key=lambda result: int(result["index"]))])
