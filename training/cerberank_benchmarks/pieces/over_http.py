"""Measures servers over HTTP with one client and the same weights: `cerberank serve`, infinity-emb where it is given,
and CrossEncoder in this process, without the cost of HTTP.
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
from sentence_transformers import CrossEncoder

from cerberank_benchmarks.clients.server import cerberank_server, infinity_server
from cerberank_benchmarks.pieces.offline import EQUAL, PEER, compared, predicted, speed_chart
from cerberank_benchmarks.report import Report, Value
from cerberank_benchmarks.rounds import median_seconds
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.weights import MAX_LENGTH, cross_encoder, imported
from cerberank_benchmarks.workload import Task, Workload

INFINITY = "infinity"
INFINITY_MODEL = "default/not-specified"
"""The name that infinity-emb 0.0.77 gives to a model from a folder."""


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates and server."""
    source = cross_encoder(settings, scratch)
    checkpoint = imported(source, scratch)
    peer = CrossEncoder(str(source), max_length=MAX_LENGTH, device="cpu")
    rows: list[dict[str, Value]] = []
    workload = Workload(settings)
    with ExitStack() as servers:
        ours = {
            name: servers.enter_context(cerberank_server(checkpoint.path, _made(scratch / name), precision=name)).client
            for name in ("fp32", "int8")
        }
        theirs = None
        if settings.infinity is not None:
            theirs = servers.enter_context(infinity_server(settings.infinity, source, scratch)).client
        for count in settings.candidates:
            task = workload.task(count)
            runs: dict[str, Callable[[], NDArray[Any]]] = {PEER: partial(predicted, peer, task)}
            runs |= {name: partial(_rank, client, task) for name, client in ours.items()}
            if theirs is not None:
                runs[INFINITY] = partial(_rerank, theirs, task)
            scores = {name: run() for name, run in runs.items()}  # also the warm-up
            seconds = median_seconds(runs, rounds=settings.rounds, label=f"{count} candidates over HTTP")
            for row in compared(count, seconds, scores):
                if theirs is not None:
                    row["ratio to infinity"] = seconds[INFINITY] / float(row["seconds"])
                rows.append(row)
    bounds = EQUAL | {INFINITY: EQUAL["fp32"]}
    return Report(
        name="http",
        text="One question a request, one client: median seconds of the whole request, and times faster than "
        "CrossEncoder in process.",
        rows=rows,
        chart=speed_chart(rows),
        problems=[
            f"{row['candidates']} candidates, {row['by']}: scores differ by {row['largest difference']:.2g}"
            for row in rows
            if float(row["largest difference"]) > bounds.get(str(row["by"]), np.inf)
        ],
    )


def _rank(client: httpx.Client, task: Task) -> NDArray[Any]:
    body = {"question": task.question, "candidates": list(task.texts), "windows": "off"}  # its peers cut as well
    results = client.post("/v1/rank", json=body).raise_for_status().json()["results"]
    return _by_index(results, "score")


def _rerank(client: httpx.Client, task: Task) -> NDArray[Any]:
    body = {"model": INFINITY_MODEL, "query": task.question, "documents": list(task.texts)}
    results = client.post("/rerank", json=body).raise_for_status().json()["results"]
    return _by_index(results, "relevance_score")


def _by_index(results: list[dict[str, Any]], field: str) -> NDArray[Any]:
    return np.asarray([result[field] for result in sorted(results, key=lambda result: int(result["index"]))])


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder
