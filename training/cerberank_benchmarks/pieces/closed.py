"""Measures latencies by size of question, and throughput, with growing numbers of closed-loop clients."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cerberank_benchmarks.clients.load import Answer
from cerberank_benchmarks.clients.server import cerberank_server
from cerberank_benchmarks.clients.traffic import Traffic, run_clients
from cerberank_benchmarks.report import Report, Value, bars
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.workload import Workload
from cerberank_models.backends.processors import usable_processors
from cerberank_models.checkpoint.bundled import default_checkpoint

CLIENTS = (1, 4, 16)


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of clients and size, and a row per number of clients for all sizes."""
    traffic = Traffic.mixed(Workload(settings), dict(settings.mix))
    rows: list[dict[str, Value]] = []
    seconds = settings.seconds / len(CLIENTS)
    checkpoint = settings.checkpoint or default_checkpoint()
    with cerberank_server(checkpoint, scratch, precision=settings.precision) as server:
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
        chart=bars(everything, "clients", ["candidates/s"], value_label="candidates per second"),
        problems=[f"{row['clients']} clients: {row['failed']} failed" for row in everything if row["failed"]],
    )


def scaling(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of threads of one process: 1, 2, 4 and so on, up to the processors that it may use."""
    traffic = Traffic.mixed(Workload(settings), dict(settings.mix))
    checkpoint = settings.checkpoint or default_checkpoint()
    processors = usable_processors()
    counts = sorted({2**power for power in range(processors.bit_length())} | {processors})
    clients, seconds = CLIENTS[-1], settings.seconds / len(counts)
    rows: list[dict[str, Value]] = []
    for threads in counts:
        with cerberank_server(checkpoint, scratch, precision=settings.precision, threads=threads) as server:
            url = str(server.client.base_url)
            each = run_clients(url, [traffic] * clients, seconds=seconds, seed=settings.seed)
        rows.append({"threads": threads, **summarise(list(itertools.chain(*each)))[-1]})
    first = float(rows[0]["tokens/s"])
    rows = [{**row, "times one thread": float(row["tokens/s"]) / first} for row in rows]
    return Report(
        name="scaling",
        text=f"{clients} clients that ask again when they are answered, {seconds:g} s for each number of threads. They "
        "use the same processors, which costs the largest number of threads most.",
        rows=rows,
        chart=bars(rows, "threads", ["times one thread"], value_label="tokens/s, in multiples of one thread's"),
        problems=[f"{row['threads']} threads: {row['failed']} failed" for row in rows if row["failed"]],
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
