"""Open-loop load, questions of 20 to 5,000 candidates: latencies, goodput under an objective, overload, recovery."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cerberank_models.bundled import default_checkpoint
from cerberank_training.benchmarks.open_loop import BUSY, Arrival, Traffic, run_phase
from cerberank_training.benchmarks.report import Chart, Report, Value
from cerberank_training.benchmarks.server import Server, cerberank_server
from cerberank_training.benchmarks.settings import Settings
from cerberank_training.benchmarks.workload import Workload

SHARES = {20: 0.6, 200: 0.3, 1000: 0.08, 5000: 0.02}
VARIANTS = 4
"""Different questions of each size."""
PHASES = {"half": 0.5, "near": 0.8, "overload": 3.0, "after": 0.5}
"""Load relative to capacity, in order."""
CAPACITY_CANDIDATES = 1000


def run(settings: Settings, scratch: Path) -> Report:
    """A row a phase and size, and one for all sizes."""
    workload = Workload(settings)
    bodies = {size: [_body(workload, size, seed) for seed in range(VARIANTS)] for size in SHARES}
    traffic = Traffic(shares=SHARES, bodies=bodies)
    rows: list[dict[str, Value]] = []
    recovery = 0.0
    checkpoint = settings.checkpoint or default_checkpoint()
    with cerberank_server(checkpoint, scratch, precision=settings.precision) as server:
        capacity = _capacity(server, workload, settings.rounds)
        for number, (phase, load) in enumerate(PHASES.items()):
            rate = load * capacity / traffic.mean_candidates
            arrivals = asyncio.run(
                run_phase(
                    str(server.client.base_url),
                    traffic,
                    rate=rate,
                    seconds=settings.seconds,
                    seed=settings.seed + number,
                )
            )
            if phase == "overload":
                recovery = _recovery(server, bodies[min(SHARES)][0], settings)
            memory = server.resident_bytes / 1e6
            rows += [
                {"phase": phase, "load": load, "memory MB": memory, **row}
                for row in summarise(arrivals, settings=settings, capacity=capacity)
            ]
    limit = f"{settings.grace:g} s + {settings.slack:g} x its candidates / capacity"
    return Report(
        name="load",
        text=f"Poisson arrivals, {settings.seconds:g} s a phase, shares {SHARES}; capacity {capacity:.0f} "
        f"candidates/s, measured with one client and {CAPACITY_CANDIDATES} candidates. In time: within {limit}. "
        f"Refused clients obey Retry-After. {recovery:.1f} s after the overload a small question was in time again.",
        rows=rows,
        chart=_chart(rows),
        problems=[f"{row['phase']}: {row['failed']} failed" for row in rows if row["failed"] and row["size"] == "all"],
    )


def summarise(arrivals: Sequence[Arrival], *, settings: Settings, capacity: float) -> list[dict[str, Value]]:
    """A row a size with arrivals, and one for all; goodput counts candidates answered in time while the phase ran."""
    sizes = sorted({arrival.candidates for arrival in arrivals})
    groups = {str(size): [arrival for arrival in arrivals if arrival.candidates == size] for size in sizes}
    return [
        _row(name, group, settings, capacity) for name, group in (groups | {"all": list(arrivals)}).items() if group
    ]


def _row(name: str, group: Sequence[Arrival], settings: Settings, capacity: float) -> dict[str, Value]:
    answered = [arrival for arrival in group if arrival.fate == "answered"]
    in_time = [
        arrival
        for arrival in answered
        if arrival.seconds <= settings.grace + settings.slack * arrival.candidates / capacity
    ]
    good = sum(arrival.candidates for arrival in in_time if arrival.ended <= settings.seconds)
    seconds = np.asarray([arrival.seconds for arrival in answered] or [0.0])
    return {
        "size": name,
        "requests": len(group),
        "answered": len(answered),
        "in time": len(in_time),
        "gave up": sum(arrival.fate == "gave up" for arrival in group),
        "failed": sum(arrival.fate == "failed" for arrival in group),
        "refusals": sum(arrival.refusals for arrival in group),
        **{f"p{share} s": float(np.percentile(seconds, share)) for share in (50, 95, 99)},
        "goodput / capacity": good / settings.seconds / capacity,
    }


def _capacity(server: Server, workload: Workload, rounds: int) -> float:
    """Candidates per second of one client that always asks."""
    body = _body(workload, CAPACITY_CANDIDATES, 0)
    seconds = []
    for round_ in range(rounds + 1):
        started = time.perf_counter()
        server.client.post("/v1/rank", content=body).raise_for_status()
        if round_:
            seconds.append(time.perf_counter() - started)
    return CAPACITY_CANDIDATES / statistics.median(seconds)


def _recovery(server: Server, body: bytes, settings: Settings) -> float:
    """Seconds until a small question is answered within the grace."""
    began = time.perf_counter()
    while True:
        started = time.perf_counter()
        response = server.client.post("/v1/rank", content=body)
        now = time.perf_counter()
        if response.status_code == 200 and now - started <= settings.grace:
            return now - began
        if response.status_code in BUSY:
            time.sleep(0.05)


def _body(workload: Workload, candidates: int, seed: int) -> bytes:
    task = workload.task(candidates, seed=seed)
    return json.dumps({"question": task.question, "candidates": task.texts}).encode()


def _chart(rows: Sequence[dict[str, Value]]) -> Chart:
    everything = [row for row in rows if row["size"] == "all"]
    return Chart(
        kind="bars",
        places=[f"{row['phase']} ({row['load']:g}x)" for row in everything],
        series={name: [float(row[name]) for row in everything] for name in ("goodput / capacity", "p50 s", "p99 s")},
        place_label="phase (load relative to capacity)",
        value_label="share of capacity; seconds",
    )
