"""Measures the wait of a small question while large ones keep the queue full, in seconds and in engine steps."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cerberank_benchmarks.clients.load import Answer
from cerberank_benchmarks.clients.server import cerberank_server
from cerberank_benchmarks.clients.traffic import Traffic, run_clients
from cerberank_benchmarks.pieces.closed import percentiles
from cerberank_benchmarks.report import Report, Value, bars
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.workload import Workload
from cerberank_models.checkpoint.bundled import default_checkpoint

BESIDE = (0, 1, 4)
"""Numbers of clients that send large questions continuously."""
STEP_TOKENS = 8192
"""Tokens of a step, which is also the largest step that the service chooses on a processor."""


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of clients with large questions, beside one client with small questions."""
    workload = Workload(settings)
    sizes = dict(settings.mix)
    small, large = (Traffic.mixed(workload, {size: 1.0}) for size in (min(sizes), max(sizes)))
    checkpoint = settings.checkpoint or default_checkpoint()
    seconds = settings.seconds / len(BESIDE)
    arrivals: dict[int, list[list[Answer]]] = {}
    with cerberank_server(checkpoint, scratch, precision=settings.precision, step_tokens=STEP_TOKENS) as server:
        for count in BESIDE:
            clients = [small, *[large] * count]
            url = str(server.client.base_url)
            arrivals[count] = run_clients(url, clients, seconds=seconds, seed=settings.seed)
    rows = summarise(arrivals)
    return Report(
        name="fairness",
        text=f"One client with {min(sizes)} candidates beside others with {max(sizes)}, {seconds:g} s each. "
        f"Wait: its p95 beyond its own p50 when alone, in steps of {STEP_TOKENS} tokens at the large ones' rate.",
        rows=rows,
        chart=bars(
            rows,
            "large clients",
            ("p50 s", "p95 s", "p99 s"),
            value_label="seconds of a small question",
            place_label="clients with large questions",
        ),
    )


def summarise(arrivals: Mapping[int, Sequence[Sequence[Answer]]]) -> list[dict[str, Value]]:
    """A row per number n of clients with large questions; n = 0 must be present.

    `arrivals[n][0]` are the answers of the client with small questions.
    """
    alone = float(np.median([arrival.seconds for arrival in arrivals[0][0]]))
    rows: list[dict[str, Value]] = []
    for count, (small, *others) in arrivals.items():
        large = list(itertools.chain(*others))
        rate = sum(each.tokens for each in large) / max((each.ended for each in large), default=1.0)
        seconds = percentiles([arrival.seconds for arrival in small])
        wait = float(seconds["p95 s"]) - alone
        rows.append(
            {
                "large clients": count,
                "small questions": len(small),
                **seconds,
                "large, tokens/s": rate,
                "wait, steps": wait * rate / STEP_TOKENS,
            }
        )
    return rows
