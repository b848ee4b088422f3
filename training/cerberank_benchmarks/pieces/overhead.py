"""Measures the time that HTTP, JSON and scheduling add to a question.

The client's time is compared with the server's own times, and with the same work without a server.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from cerberank_benchmarks.clients.server import cerberank_server
from cerberank_benchmarks.report import Report, Value, bars
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.workload import Workload
from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.rank import rank_pairs

PHASES = ("tokenise", "compute", "encode - tokenise", "queue", "rest")


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates: medians in milliseconds of alternating runs with and without a server."""
    checkpoint = read_checkpoint(settings.checkpoint or default_checkpoint())
    encoder = checkpoint.encoder()
    backend = open_backend(checkpoint, precision=settings.precision)
    rows: list[dict[str, Value]] = []
    workload = Workload(settings)
    # The comparison tokenises in every round, so the server must too; with its cache the overhead would be negative.
    with cerberank_server(checkpoint.path, scratch, precision=settings.precision, token_cache_bytes=0) as server:
        for candidates in settings.candidates:
            task = workload.task(candidates)
            body = {"question": task.question, "candidates": list(task.texts)}
            seen: dict[str, list[float]] = {}
            for round_ in range(settings.rounds + 1):
                started = time.perf_counter()
                answer = server.client.post("/v1/rank", json=body).raise_for_status().json()
                answered = time.perf_counter()
                pairs = encoder.encode(task.question, task.candidates)
                encoded = time.perf_counter()
                rank_pairs(backend, pairs)
                ranked = time.perf_counter()
                times = answer["timing_ms"]
                now = {
                    "wall": 1000 * (answered - started),
                    "tokenise": 1000 * (encoded - answered),
                    "offline": 1000 * (ranked - answered),
                    "compute": times["compute"],
                    "queue": times["queue"],
                    "encode": times["encode"],
                }
                if round_:  # the first round is the warm-up
                    for name, value in now.items():
                        seen.setdefault(name, []).append(value)
            rows.append(_row(candidates, {name: statistics.median(values) for name, values in seen.items()}))
    return Report(
        name="overhead",
        text=f"{checkpoint.config.name}, {settings.precision}, one client; milliseconds. `rest` is what the server's "
        "three times leave of the client's: HTTP, rendering, threads. The share counts everything but tokenising "
        "(timed without a server) and computing.",
        rows=rows,
        chart=bars(rows, "candidates", PHASES, value_label="milliseconds"),
    )


def _row(candidates: int, median: dict[str, float]) -> dict[str, Value]:
    wall, necessary = median["wall"], median["compute"] + median["tokenise"]
    return {
        "candidates": candidates,
        "wall": wall,
        "tokenise": median["tokenise"],
        "compute": median["compute"],
        "encode - tokenise": median["encode"] - median["tokenise"],
        "queue": median["queue"],
        "rest": wall - median["encode"] - median["queue"] - median["compute"],
        "without a server": median["offline"],
        "overhead share": (wall - necessary) / wall,
    }
