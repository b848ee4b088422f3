"""Measures latencies by size of question, and throughput, with growing numbers of closed-loop clients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cerberank_benchmarks.clients.load import Answer
from cerberank_benchmarks.clients.server import cerberank_server
from cerberank_benchmarks.clients.traffic import Traffic, run_clients
from cerberank_benchmarks.report import Chart, Report, Value
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.workload import Workload
from cerberank_models.checkpoint.bundled import default_checkpoint

CLIENTS = (1, 4, 16)


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of clients and size, and a row per number of clients for all sizes."""
    traffic = Traffic.mixed(Workload(settings), dict(settings.mix))
    rows: list[dict[str, Value]] = []
    seconds = settings.seconds / len(CLIENTS)
    checkpoint = settings.checkpoint or default_checkpoint()
    with cerberank_server(checkpoint, scratch, {"precision": settings.precision}) as server:
        for clients in CLIENTS:
            url = str(server.client.base_url)
            each = run_clients(url, [traffic] * clients, seconds=seconds, seed=settings.seed)
            rows += [{"clients": clients, **row} for row in summarise(list(itertools.chain(*each)))]
    everything = [row for row in rows if row["size"] == "all"]
    return Report(
        name="closed",
        text=f"Clients that ask again when they are answered, shares {dict(settings.mix)}, {seconds:g} s "
        "for each number of clients and until the last answer.",
        rows=rows,
        chart=Chart(
            places=CLIENTS,
            series={"candidates/s": [float(row["candidates/s"]) for row in everything]},
            place_label="clients",
            value_label="candidates per second",
        ),
        problems=[f"{row['clients']} clients: {row['failed']} failed" for row in everything if row["failed"]],
    )


def summarise(arrivals: Sequence[Answer]) -> list[dict[str, Value]]:
    """A row per size that occurs, and one for all sizes; rates are over the time until the last answer."""
    seconds = max(arrival.ended for arrival in arrivals)
    sizes = sorted({arrival.candidates for arrival in arrivals})
    groups = {str(size): [arrival for arrival in arrivals if arrival.candidates == size] for size in sizes}
    return [_row(name, group, seconds) for name, group in (groups | {"all": list(arrivals)}).items()]


def _row(name: str, group: Sequence[Answer], seconds: float) -> dict[str, Value]:
    answered = [arrival for arrival in group if arrival.fate == "answered"]
    return {
        "size": name,
        "answered": len(answered),
        "failed": len(group) - len(answered),
        **percentiles([arrival.seconds for arrival in answered]),
        "candidates/s": sum(arrival.candidates for arrival in answered) / seconds,
        "tokens/s": sum(arrival.tokens for arrival in answered) / seconds,
    }


def percentiles(seconds: Sequence[float]) -> dict[str, Value]:
    """The columns p50, p95 and p99; 0 without values."""
    return {f"p{share} s": float(np.percentile(seconds or [0.0], share)) for share in (50, 95, 99)}
