"""Measures latencies, goodput, overload and recovery under open-loop load, by default with 20 to 5,000 candidates.

The server refuses questions that would wait longer in the queue than its bound.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from cerberank_benchmarks.clients.load import Answer
from cerberank_benchmarks.clients.server import ServerSettings, cerberank_server
from cerberank_benchmarks.clients.traffic import Traffic, body, run_phase
from cerberank_benchmarks.neighbours import problems, processor_time
from cerberank_benchmarks.pieces.closed import percentiles
from cerberank_benchmarks.report import Chart, Report, Value
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.workload import Workload
from cerberank_models.checkpoint.bundled import default_checkpoint

PHASES = {"half": 0.5, "near": 0.8, "overload": 3.0, "after": 0.5}
"""The phases in order, with their load relative to the capacity."""
CAPACITY_CANDIDATES = 1000
PROBE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Capacity:
    """The throughput per second of one client that always sends questions with 1,000 candidates."""

    candidates: float
    tokens: float


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per phase and size, and a row per phase for all sizes."""
    # The capacity is measured on a server of its own, which refuses nothing.
    before = processor_time()
    workload = Workload(settings)
    traffic = Traffic.mixed(workload, dict(settings.mix))
    checkpoint = settings.checkpoint or default_checkpoint()
    with cerberank_server(checkpoint, scratch, {"precision": settings.precision}) as server:
        capacity = _capacity(server.client, body(workload, CAPACITY_CANDIDATES), settings.rounds)
    # The phases follow one another on one server, so that the last one shows what the overload has left behind.
    rows: list[dict[str, Value]] = []
    recovery = 0.0
    bounded: ServerSettings = {"precision": settings.precision, "queue_seconds": settings.queue_seconds}
    with cerberank_server(checkpoint, scratch, bounded) as server:
        for number, (phase, load) in enumerate(PHASES.items()):
            rate = load * capacity.candidates / traffic.mean_candidates
            arrivals, seconds = asyncio.run(_phase(str(server.client.base_url), traffic, rate, settings, number))
            recovery = seconds if phase == "overload" else recovery
            memory = server.resident_bytes / 1e6
            rows += [
                {"phase": phase, "load": load, "memory MB": memory, **row}
                for row in summarise(arrivals, settings=settings, capacity=capacity.candidates)
            ]
    return Report(
        name="load",
        text=f"Poisson arrivals, {settings.seconds:g} s a phase, shares {dict(settings.mix)}; capacity "
        f"{capacity.candidates:.0f} candidates/s, {capacity.tokens:.0f} tokens/s, measured with one client and "
        f"{CAPACITY_CANDIDATES} candidates. In time: within {settings.queue_seconds:g} s beyond its candidates "
        "/ capacity. Refused clients obey Retry-After. "
        f"{recovery:.2f} s after the overload a question of {min(traffic.shares)} was in time again.",
        rows=rows,
        chart=_chart(rows),
        problems=[
            *(f"{row['phase']}: {row['failed']} failed" for row in rows if row["failed"] and row["size"] == "all"),
            *problems(before, processor_time()),
        ],
    )


def summarise(arrivals: Sequence[Answer], *, settings: BenchmarkSettings, capacity: float) -> list[dict[str, Value]]:
    """A row per size that occurs, and one for all sizes.

    Goodput is the number of candidates answered in time, per second until the last answer, because some questions of
    the phase are answered after its end.
    """
    seconds = max([settings.seconds, *(arrival.ended for arrival in arrivals if arrival.fate == "answered")])
    sizes = sorted({arrival.candidates for arrival in arrivals})
    groups = {str(size): [arrival for arrival in arrivals if arrival.candidates == size] for size in sizes}
    groups["all"] = list(arrivals)
    return [_row(name, group, settings, capacity, seconds) for name, group in groups.items()]


def _row(
    name: str, group: Sequence[Answer], settings: BenchmarkSettings, capacity: float, seconds: float
) -> dict[str, Value]:
    answered = [arrival for arrival in group if arrival.fate == "answered"]
    shares = [(each.seconds - each.candidates / capacity) / settings.queue_seconds for each in answered]
    good = sum(arrival.candidates for arrival, share in zip(answered, shares, strict=True) if share <= 1)
    return {
        "size": name,
        "requests": len(group),
        "answered": len(answered),
        "in time": sum(share <= 1 for share in shares),
        "gave up": sum(arrival.fate == "gave up" for arrival in group),
        "failed": sum(arrival.fate == "failed" for arrival in group),
        "refusals": sum(arrival.refusals for arrival in group),
        **percentiles([arrival.seconds for arrival in answered]),
        "p99 / limit": float(np.percentile(shares or [0.0], 99)),
        "goodput / capacity": good / seconds / capacity,
    }


def _capacity(client: httpx.Client, content: bytes, rounds: int) -> Capacity:
    client.post("/v1/rank", content=content).raise_for_status()  # warms up
    seconds = []
    tokens = 0
    for _ in range(rounds):
        started = time.perf_counter()
        answer = client.post("/v1/rank", content=content).raise_for_status()
        seconds.append(time.perf_counter() - started)
        tokens = int(answer.json()["usage"]["tokens"])
    median = statistics.median(seconds)
    return Capacity(CAPACITY_CANDIDATES / median, tokens / median)


async def _phase(
    url: str, traffic: Traffic, rate: float, settings: BenchmarkSettings, number: int
) -> tuple[list[Answer], float]:
    """The answers, and the seconds from the phase's end until a small question was answered in time."""
    arrivals, recovery = await asyncio.gather(
        run_phase(url, traffic, rate=rate, seconds=settings.seconds, seed=settings.seed + number),
        _recovery(url, traffic.bodies[min(traffic.shares)][0], settings),
    )
    return arrivals, recovery


async def _recovery(url: str, content: bytes, settings: BenchmarkSettings) -> float:
    await asyncio.sleep(settings.seconds)
    began = time.perf_counter()
    async with httpx.AsyncClient(base_url=url, timeout=600.0) as client:
        while True:
            started = time.perf_counter()
            response = await client.post("/v1/rank", content=content)
            now = time.perf_counter()
            if response.status_code == httpx.codes.OK and now - started <= settings.queue_seconds:
                return now - began
            await asyncio.sleep(PROBE_SECONDS)


def _chart(rows: Sequence[dict[str, Value]]) -> Chart:
    everything = [row for row in rows if row["size"] == "all"]
    return Chart(
        places=[f"{row['phase']} ({row['load']:g}x)" for row in everything],
        series={name: [float(row[name]) for row in everything] for name in ("goodput / capacity", "p99 / limit")},
        place_label="phase (load relative to capacity)",
        value_label="share of capacity; share of the time limit",
    )
